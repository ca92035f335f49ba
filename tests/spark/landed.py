"""A landed dataset without a broker: whatever values a test wants, as the daemon would have landed them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from fastwire.position import Log, Position, Span
from fastwire.pulsar.columns import ROW
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.encoders.base import EncoderOptions, parse_compression
from fastwire_daemon.encoders.parquet import ParquetEncoder

TOPIC = "persistent://public/default/orders"
BASE = datetime(2026, 1, 2, 3, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("ledger", pa.int64()),
        ("batchIndex", pa.int32()),
    ]
)


class Landed:
    """The dataset at ``path``; every call of ``add`` is one file, and one entry of ledger 7."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0
        self._log = Log("pulsar", "broker:6650", TOPIC, "-1")

    def add(self, values: Sequence[bytes | None], after: timedelta | Sequence[timedelta] = timedelta()) -> None:
        """Land ``values``, published at ``BASE`` and ``after``, in one file."""
        count = len(values)
        times = [BASE + each for each in ([after] * count if isinstance(after, timedelta) else after)]
        batch = pa.record_batch(
            [
                pa.array([None] * count, pa.binary()),
                pa.array(values, pa.binary()),
                pa.array([TOPIC] * count),
                pa.array([-1] * count, pa.int32()),
                pa.array([self.files] * count, pa.int64()),
                pa.array(times, pa.timestamp("us", "UTC")),
                pa.array([7] * count, pa.int64()),
                pa.array(range(count), pa.int32()),
            ],
            schema=SCHEMA,
        )
        options = DatasetOptions(system="pulsar", cluster="broker:6650", columns=tuple(SCHEMA.names))
        writer = DatasetWriter(self.path, options)
        end = writer.open().end(self._log) or PULSAR_EARLIEST
        file = writer.stage()
        columns = tuple(column for column in ROW.columns if column.name in SCHEMA.names)
        encoder = ParquetEncoder(
            file.file, SCHEMA, EncoderOptions(compression=parse_compression(None, {"zstd": ""}), columns=columns)
        )
        encoder.write(batch)
        encoder.finish()
        file.rows = count
        writer.commit([file], [Span(self._log, end, Position(7, self.files), count)])
        writer.close()
        self.files += 1
