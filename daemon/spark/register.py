"""The class by which Spark finds the format.

It imports nothing compiled, because Spark's look-up of formats imports this module first. If it failed to import, every
other format that Spark finds in this way would be gone with it.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)


class FastwireSource(DataSource):
    """``format("fastwire")`` of ``spark.read``, ``spark.readStream``, ``frame.write`` and ``frame.writeStream``.

    ``spark.dataSource.register(FastwireSource)`` makes it known where Spark does not find it by itself.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "fastwire"

    def schema(self) -> str:
        """Return the columns for the options."""
        from .source.options import columns_of
        from .source.rows import ddl

        return ddl(columns_of(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader for ``spark.read``. Raises ConfigError with all that is wrong with the options."""
        from .source.datasource import batch_reader

        return batch_reader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader for ``spark.readStream``. Raises ConfigError with all that is wrong with the options."""
        from .source.datasource import StreamReader

        return StreamReader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``frame.write``. Raises ConfigError with all that is wrong with options or columns."""
        from .sink.datawriter import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer for ``frame.writeStream``. Raises ConfigError as ``writer``."""
        from .sink.datawriter import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)
