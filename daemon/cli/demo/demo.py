"""The demo: produces records to a broker, lands them as Parquet and verifies the dataset, in one command.

The pipeline runs in a process of its own, started as a user starts it, so that the figures at the end are those of
the daemon alone.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console

from fastwire.errors import FastwireError
from fastwire.systems import SYSTEMS

from ...config import parse_connection
from ...devbroker.base import dev_broker
from ...devbroker.server import running
from ...runtime.amounts import counted, format_bytes
from ...systems.load import Load
from ...systems.registry import system_named
from ...systems.writer import WriteOptions
from ..printed import place_of

PARTITIONS = 4
TOPIC = "demo"
GROUP = "fastwire-demo"

MARK = "# Written by fastwire-consume demo, which replaces this file and its dataset when it runs again."
CONFIG = """\
{mark}
[daemon]
http = ""

[pipelines.demo.source]
url = "{url}"
topics = ["{topic}"]
{group}start = "earliest"

[pipelines.demo.sink]
type = "parquet"
path = "{path}"
"""


class DemoFailed(FastwireError):  # noqa: N818 - named for the event, as SourceFailed is
    """A part of the demo has failed; the text names it."""


class _Usage(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_bytes: int


def demo(
    *,
    records: int = 1_000_000,
    path: Path = Path("demo-data"),
    system: str = SYSTEMS[0],
    broker: Literal["embedded", "real"] = "embedded",
    console: Console | None = None,
) -> None:
    """Produce ``records`` JSON documents, land them at ``path``, and print the figures and the first rows.

    The configuration is written beside the dataset, as ``path`` with ``.toml``. The files of an earlier demo in both
    places are replaced; other files there are left alone and are an error. Raises DemoFailed.
    """
    show = console or Console(highlight=False, soft_wrap=True)
    file = path.with_name(path.name + ".toml")
    if not path.absolute().parent.is_dir():
        raise DemoFailed(f"{path.absolute().parent} is not a folder: use another --path")
    _clear(path, file)
    serving = (_real if broker == "real" else _embedded)(system, records, show)
    with serving as (url, topic):
        word = system_named(system).grammar.group_word
        group = f'{word} = "{GROUP}"\n' if word else ""
        config = CONFIG.format(mark=MARK, url=url, topic=topic, group=group, path=path.absolute())
        file.write_text(config, encoding="utf-8")
        show.print(f"\n[bold]fastwire-consume run {file} --until-end[/bold]\n")
        show.print(config, style="dim", markup=False)
        usage = _run(["run", str(file), "--until-end"], "the pipeline")
    _summary(path, usage, records, show)
    show.print(f"\n[bold]fastwire-consume verify {path}[/bold]\n")
    sys.stdout.flush()
    _run(["verify", str(path)], "verify")
    _five_rows(path, system, show)


def _clear(path: Path, file: Path) -> None:
    """Delete the dataset at ``path`` of an earlier demo with the configuration ``file``."""
    earlier = file.exists()
    if earlier and not _is_of_demo(file, path):
        raise DemoFailed(f"{file} exists and is not the configuration of an earlier demo: use another --path")
    if not path.exists():
        return
    if not path.is_dir() or (not earlier and any(path.iterdir())):
        raise DemoFailed(f"{path} exists and is not the dataset of an earlier demo: use another --path")
    shutil.rmtree(path)


def _is_of_demo(file: Path, path: Path) -> bool:
    """Return whether a demo wrote ``file`` for a dataset at ``path``."""
    try:
        text = file.read_text(encoding="utf-8")
        sink = tomllib.loads(text)["pipelines"]["demo"]["sink"]
        return text.startswith(MARK) and sink["path"] == str(path.absolute())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "fastwire_daemon.cli", *arguments]


def _run(arguments: list[str], what: str) -> _Usage:
    """Run a fastwire-consume command to its end with inherited output; return the resources that it used."""
    started = time.monotonic()
    process = subprocess.Popen(_command(arguments))
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise DemoFailed(f"{what} ended with exit code {process.returncode}")
    return _Usage(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


@contextmanager
def _real(system: str, records: int, show: Console) -> Iterator[tuple[str, str]]:
    """Yield the URL and the topic of a real broker that holds the records."""
    topic = system_named(system).grammar.topic(f"{TOPIC}-{time.time_ns():x}")
    with _real_broker(system, topic, show) as url:
        load = Load(records=records, partitions=PARTITIONS)
        started = time.monotonic()
        asyncio.run(_produce(system, url, topic, load, show))
        _say_produced(load, topic, started, show)
        yield url, topic


async def _produce(system: str, url: str, topic: str, load: Load, show: Console) -> None:
    options = WriteOptions(batch=load.batch)
    done = 0
    async with system_named(system).open_writer(parse_connection({"url": url}), topic, options) as writer:
        with _producing(load.records, show) as progress:
            async for records in writer.generate(load):
                done += records
                progress(done)


@contextmanager
def _embedded(system: str, records: int, show: Console) -> Iterator[tuple[str, str]]:
    """Yield the URL and the topic of an embedded broker in this process that holds the records."""
    show.print("Starting the embedded broker …")
    load = Load(records=records, partitions=PARTITIONS)
    broker = dev_broker(system)
    with running(broker):
        broker.create_topic(TOPIC, PARTITIONS)
        started = time.monotonic()
        done = 0
        with _producing(records, show) as progress:
            for partition, numbers in load.parts():
                keys = [load.key(number).encode() for number in numbers]
                values = list(map(load.record, numbers))
                broker.produce(TOPIC, values, partition, keys=keys if broker.keyed else None, codec=broker.usual_codec)
                done += len(numbers)
                progress(done)
        _say_produced(load, TOPIC, started, show)
        yield broker.url, TOPIC


@contextmanager
def _producing(records: int, show: Console) -> Iterator[Callable[[int], None]]:
    """Show a progress line; yields a function that takes the number of records produced so far."""
    with show.status("") as status:
        yield lambda done: status.update(f"Producing: {done:,} of {records:,} records")


def _say_produced(load: Load, topic: str, started: float, show: Console) -> None:
    show.print(
        f"Produced {load.records:,} JSON records of about {load.record_bytes} bytes over"
        f" {PARTITIONS} partitions of {topic} in {time.monotonic() - started:.1f} s."
    )


@contextmanager
def _real_broker(system: str, topic: str, show: Console) -> Iterator[str]:
    """Yield the URL of a real broker with the topic; the broker ends with the block."""
    tree = Path(__file__).parent.parent.parent
    if not (tree / "tests" / "brokers" / f"{system}.py").exists():
        raise DemoFailed("a real broker can be started from the source tree only")
    show.print(f"Starting a real {system_named(system).grammar.title} broker (the first start downloads it) …")
    command = [sys.executable, "-m", f"tests.brokers.{system}", "--topic", topic, "--partitions", str(PARTITIONS)]
    process = subprocess.Popen(command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield _url(process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _url(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            url: str = json.loads(line)["url"]
            return url
    raise DemoFailed(f"the broker did not start (exit code {process.wait()})")


def _summary(path: Path, usage: _Usage, records: int, show: Console) -> None:
    import pyarrow.dataset as ds

    data = ds.dataset(path, format="parquet", partitioning="hive")
    files = data.files
    size = sum(os.path.getsize(file) for file in files)
    rows = data.count_rows()
    show.print(
        f"\n{rows:,} rows in {counted(len(files), 'file')}, {format_bytes(size)};"
        f" {rows / usage.wall_s:,.0f} records a second from start to exit ({usage.wall_s:.1f} s);"
        f" CPU {usage.cpu_s / max(rows, 1) * 1e6:.2f} µs a record ({usage.cpu_s:.1f} s, start and imports included);"
        f" peak memory {format_bytes(usage.peak_bytes)}."
    )
    if rows != records:
        raise DemoFailed(f"{records:,} records were produced, {rows:,} are in the files")


def _five_rows(path: Path, system: str, show: Console) -> None:
    import pyarrow.dataset as ds

    data = ds.dataset(path, format="parquet", partitioning="hive")
    show.print(f"\n[bold]Five rows of {path}[/bold] (of {len(data.schema)} columns: {', '.join(data.schema.names)})\n")
    for row in data.head(5).to_pylist():
        place = f"{row['partition']} {place_of(row, system)}"
        time = "" if row["timestamp"] is None else f"{row['timestamp']:%H:%M:%S.%f}  "
        line = f"{place}  {time}{_text(row['key'])}  {_text(row['value'])}"
        show.print(line, markup=False)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
