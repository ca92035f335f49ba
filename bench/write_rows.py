"""Arrow batches into topics of an embedded broker in a process of its own: by rows, and by one object a record.

    python -m bench.write_rows [--json]

Values of 100 B and keys of 12 B in three partitions, in batches of 1,000 and with LZ4, which is the usual one. A batch
for Pulsar has any keys. CPU is that of this process: routing, encoding, compression and requests; the broker's is not
in it.
"""

import asyncio
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa

from fastwire.columns.rows import Rows
from fastwire_daemon.config import parse_connection
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.writer import WriteOptions, Writer, puts_of

from .child import ROOT, show
from .message import Messages

BATCH = 10_000  # rows, as Spark hands them over
ROWS = {"rows": 1_000_000, "records": 100_000}


def batches(count: int, *, keys: bool) -> list[pa.RecordBatch]:
    """Return batches with ``count`` rows, which repeat after ten."""
    source, found = Messages(100), []
    for number in range(min(count // BATCH, 10)):
        numbers = range(number * BATCH, (number + 1) * BATCH)
        columns = {"value": pa.array([source.value(each) for each in numbers])}
        if keys:
            columns["key"] = pa.array([source.key(each) for each in numbers], pa.binary()).cast(pa.string())
        found.append(pa.record_batch(columns))
    return found * (count // BATCH // len(found))


async def write(writer: Writer, given: list[pa.RecordBatch], way: str) -> None:
    for batch in given:
        rows = Rows(batch)
        if way == "rows":
            await writer.write_rows(rows)
        else:
            for put in puts_of(rows):
                await writer.write(put)
    await writer.flush()


async def measured(url: str, system: str, way: str, *, keys: bool) -> dict[str, Any]:
    given = batches(ROWS[way], keys=keys)
    options = WriteOptions(batch=1000, batching="mixed")
    async with system_named(system).open_writer(parse_connection({"url": url}), "bench", options) as writer:
        await write(writer, given[:1], way)  # connections, and the first memory
        cpu, clock = time.process_time(), time.perf_counter()
        await write(writer, given, way)
        cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    return {
        "bench": "write_rows",
        "system": system,
        "keys": keys,
        "way": way,
        "rows": ROWS[way],
        "cpu_us_per_row": round(cpu / ROWS[way] * 1e6, 3),
        "rows_per_s": round(ROWS[way] / clock),
    }


def figures(system: str) -> list[dict[str, Any]]:
    """Measure both ways at one broker; ``times`` is how much less CPU rows need."""
    command = [sys.executable, "-m", "fastwire_daemon.cli", "dev-broker", system, "--port", "0"]
    command += ["--topic", "bench", "--partitions", "3"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        url = next(word for word in process.stdout.readline().split() if "://" in word)
        found = []
        for keys in (True, False):
            one, other = (asyncio.run(measured(url, system, way, keys=keys)) for way in ROWS)
            one["times"] = round(other["cpu_us_per_row"] / one["cpu_us_per_row"], 1)
            found += [one, other]
        return found
    finally:
        process.terminate()
        process.communicate(timeout=30)


def main() -> None:
    """Measure and print."""
    show([figure for system in ("kafka", "pulsar") for figure in figures(system)])


if __name__ == "__main__":
    main()
