"""Rows to encode as Parquet: those of a Pulsar topic, values of 1 KiB, and eight typed columns."""

import random
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa

from fastwire.parquet.file import ParquetWriter
from fastwire.pulsar.columns import ROW
from fastwire_daemon.testing import Feed

ENTRIES, ROWS = 16, 1_000  # of a chunk
CHUNKS = 8  # of a row group
COLUMNS = {column.name: (column.role, column.stats) for column in ROW.columns}
Batches = Sequence[pa.RecordBatch]


class JsonFeed(Feed):
    """A feed of JSON values that compress about as well as real ones."""

    _random = random.Random(1)

    def _values(self, partition: int, entry: int) -> list[bytes]:
        first = 10**9 + entry * ROWS
        return [
            b'{"id":%d,"partition":%d,"h":"%s"}' % (number, partition, self._random.randbytes(32).hex().encode())
            for number in range(first, first + ROWS)
        ]


def envelope() -> Batches:
    """Values of 100 bytes, half of them random hex, in the columns of Pulsar; batches of 1,000 of four partitions."""
    feed = JsonFeed(partitions=4, rows=ROWS)
    return [pa.record_batch(feed.chunk(ENTRIES)) for _ in range(CHUNKS)]


def large() -> Batches:
    """Values of 1 KiB alone."""
    rng = random.Random(1)
    cells = [b'{"h":"%s"}' % rng.randbytes(380).hex().encode() + b"x" * 256 for _ in range(ROWS * ENTRIES)]
    return _cut(pa.record_batch({"value": pa.array(cells, pa.binary())}), 4_000)


def typed() -> Batches:
    """Numbers, times and texts of orders, with nulls in two columns."""
    rng = random.Random(1)
    rows = range(ROWS * ENTRIES * CHUNKS)
    cities = ("Berlin", "Zürich", "Paris", None)
    micros = [17 * 10**14 + row * 1000 + rng.randrange(1000) for row in rows]
    columns = {
        "id": pa.array([10**9 + row for row in rows], pa.int64()),
        "customer": pa.array([f"customer-{rng.randrange(50_000)}" for _ in rows]),
        "amount": pa.array([rng.random() * 1000 for _ in rows]),
        "price": pa.array([Decimal(rng.randrange(10**6)).scaleb(-2) for _ in rows], pa.decimal128(12, 2)),
        "created": pa.array(micros, pa.timestamp("us", "UTC")),
        "city": pa.array([rng.choice(cities) for _ in rows]),
        "paid": pa.array([rng.random() < 0.5 for _ in rows]),
        "count": pa.array([rng.randrange(100) if rng.random() < 0.9 else None for _ in rows], pa.int32()),
    }
    return _cut(pa.record_batch(columns), ROWS * ENTRIES)


def _cut(rows: pa.RecordBatch, size: int) -> Batches:
    return [rows.slice(at, size) for at in range(0, rows.num_rows, size)]


CASES: dict[str, Callable[[], Batches]] = {"envelope, 100 B": envelope, "values of 1 KiB": large, "eight typed": typed}


def encode(batches: Batches, codec: str, write: Callable[[bytes], object]) -> None:
    """Write a file of one row group."""
    level = 1 if codec == "zstd" else None
    writer = ParquetWriter(batches[0].schema, write, codec=codec, level=level, columns=COLUMNS)
    writer.write_row_group(batches)
    writer.close()
