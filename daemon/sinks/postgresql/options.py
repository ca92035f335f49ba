"""The options of a sink: the source of the records, and the columns of their rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from fastwire.decode.evolution import Column

from ...config.sql.arrowcolumns import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """The source of the records, and the columns of their rows."""

    system: str
    cluster: str
    hosts: tuple[str, ...]
    shared: bool
    """True if the source delivers in any order."""
    columns: Sequence[Column]
    """The columns of the rows by the configuration; other schemas may add some, or have wider ones."""
    inferred: Callable[[], Sequence[Column]] | None = None
    """If they are inferred from values: returns those that there are now, in place of ``columns``. Raises ValueError
    if no table can have them."""
    unstored: frozenset[str] = frozenset()
    """Columns of the rows that say what to do with them, and are not in the table."""
    changes: bool = False
    """True if the rows are change events: see ``envelope``."""

    @property
    def schema(self) -> pa.Schema:
        """The columns. Raises ValueError if they are inferred, and no table can have them."""
        return arrow_schema(self.columns if self.inferred is None else self.inferred())
