"""Rows into a table of PostgreSQL: the sink beside its driver and beside psycopg, CPU of the client alone.

    python -m bench.postgresql [--json]

Each lands the same rows of seven columns, in one transaction a roll. The sink lands positions with them and makes the
columns those of the table; its rows come as batches, without a broker and a decoder. The driver alone and psycopg
(COPY in the binary format, from Python objects) have no positions. The server is a process of its own.
"""

import gc
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import adbc_driver_postgresql.dbapi as driver
import pyarrow as pa

from fastwire_daemon.config.sinks.database import connection_uri
from fastwire_daemon.sinks.postgresql.options import PostgresOptions
from fastwire_daemon.sinks.postgresql.session import Server
from fastwire_daemon.sinks.postgresql.sink import PostgresSink
from fastwire_daemon.sinks.postgresql.target import Target
from fastwire_daemon.sinks.recordrows import DecodedRows, RecordRows
from fastwire_daemon.testing import Feed
from tests.databases.postgresql import Postgres, binaries, query

from .child import show

ROWS, CHUNKS, ROUNDS = 16_000, 16, 5
TABLE = (
    "id bigint, shop integer, note text, price numeric(12,2), at timestamptz, weight double precision, parts integer[]"
)

Way = Callable[[], Callable[[], None]]
"""Prepares a roll, and returns what lands it."""


def batch() -> pa.RecordBatch:
    """One chunk's rows."""
    numbers = range(ROWS)
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "shop": pa.array([number % 100 for number in numbers], pa.int32()),
            "note": pa.array([f"note {number} of an order" for number in numbers]),
            "price": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(12, 2)),
            "at": pa.array(
                [datetime.fromtimestamp(1.7e9 + number, UTC) for number in numbers], pa.timestamp("us", "UTC")
            ),
            "weight": pa.array([number / 7 for number in numbers], pa.float64()),
            "parts": pa.array([[number, 1, 2] for number in numbers], pa.list_(pa.int32())),
        }
    )


class _Made(RecordRows):
    """Makes the same rows of each chunk."""

    def __init__(self, made: pa.RecordBatch) -> None:
        super().__init__(("value",), "pulsar")
        self._made = made

    def decode(self, batch: pa.RecordBatch, runs: Any, pause: Any) -> Iterator[DecodedRows]:
        yield DecodedRows(self._made, runs, range(ROWS), (), 0)


def by_sink(url: str, made: pa.RecordBatch) -> Way:
    """A roll through the sink."""
    options = PostgresOptions(system="pulsar", cluster="feed", hosts=("broker:6650",), shared=False, columns=())
    server = Server(connection_uri(url, None), "the server", 60.0)
    sink = PostgresSink(server, Target("public", "rows", (), {}, frozenset()), options, _Made(made))
    feed = Feed(partitions=1, rows=ROWS)
    sink.open()

    def prepare() -> Callable[[], None]:
        chunks = [feed.chunk(1) for _ in range(CHUNKS)]

        def land() -> None:
            while chunks:
                sink.write(chunks.pop(0))
            sink.commit()

        return land

    return prepare


def by_driver(url: str, made: pa.RecordBatch) -> Way:
    """A roll through the driver alone."""
    connection = driver.connect(url)
    cursor = connection.cursor()

    def land() -> None:
        cursor.adbc_ingest("rows", pa.RecordBatchReader.from_batches(made.schema, [made] * CHUNKS), mode="append")
        connection.commit()

    return lambda: land


def by_psycopg(url: str, made: pa.RecordBatch) -> Way:
    """A roll by psycopg, row by row, as its users copy."""
    import psycopg

    connection = psycopg.connect(url)
    rows = list(zip(*(column.to_pylist() for column in made.columns), strict=True))

    def land() -> None:
        with connection.cursor() as cursor, cursor.copy("COPY rows FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "int4", "text", "numeric", "timestamptz", "float8", "int4[]"])
            for _ in range(CHUNKS):
                for row in rows:
                    copy.write_row(row)
        connection.commit()

    return lambda: land


def figures(server: Postgres) -> list[dict[str, Any]]:
    """CPU and rows a second of each: the round with the least CPU."""
    made, found = batch(), []
    query(server.url(), f"CREATE TABLE rows ({TABLE})")
    ways = {"fastwire": by_sink, "driver alone": by_driver, "psycopg": by_psycopg}
    rolls = {who: make(server.url(), made) for who, make in ways.items()}
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for who, prepare in rolls.items():
            query(server.url(), "TRUNCATE rows")
            land = prepare()
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            land()
            took = (time.process_time() - cpu, time.perf_counter() - wall)
            assert query(server.url(), "SELECT count(*) FROM rows") == [(ROWS * CHUNKS,)]
            best[who] = min(best.get(who, took), took)
    alone = best["driver alone"][0]
    for who, (cpu, wall) in best.items():
        row = {"bench": "postgresql", "who": who, "rows": ROWS * CHUNKS, "cpu_us_per_row": cpu / ROWS / CHUNKS * 1e6}
        found.append({**row, "rows_per_s": round(ROWS * CHUNKS / wall), "times_the_driver": round(cpu / alone, 2)})
    return found


def main() -> None:
    """Measure with a server of its own."""
    programs = binaries()
    if programs is None:
        show([{"bench": "postgresql", "skipped": "no PostgreSQL server is installed"}])
        return
    with Postgres(programs, synchronous_commit="on", max_wal_size="4GB") as server:
        show(figures(server))


if __name__ == "__main__":
    main()
