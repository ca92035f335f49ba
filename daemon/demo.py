"""The demo: a broker, a million records, a pipeline into Parquet, and the proof, in one command.

The pipeline is a process of its own, started the way a user starts it, so that the figures at the end are those of the
daemon alone.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console

from fastwire.errors import FastwireError
from fastwire.pulsar.payload import Compression

from .devbroker.kafka import KafkaDevBroker, running
from .load import Load
from .produce import client_settings, produce
from .progress import format_bytes

__all__ = ["DemoFailed", "demo"]

PARTITIONS = 4
TOPICS = {"pulsar": "persistent://public/default/demo", "kafka": "demo"}
BROKER_START_S = 180.0  # a real broker's first start downloads it

CONFIG = """\
[daemon]
http = ""

[pipelines.demo.source]
url = "{url}"
topics = ["{topic}"]
{group} = "fastwire-demo"
start = "earliest"

[pipelines.demo.sink]
type = "parquet"
path = "{path}"
"""


class DemoFailed(FastwireError):  # noqa: N818 - what has happened, as SourceFailed
    """A part of the demo did not do its work; the text says which."""


class _Usage(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_bytes: int


def demo(
    *,
    records: int = 1_000_000,
    path: Path = Path("demo-data"),
    system: Literal["pulsar", "kafka"] = "pulsar",
    broker: Literal["embedded", "real"] = "embedded",
    console: Console | None = None,
) -> None:
    """Produce ``records`` JSON documents, land them at ``path``, and print what it took and what is there.

    A dataset of an earlier demo at ``path`` is replaced; anything else there is an error. Raises DemoFailed.
    """
    show = console or Console(highlight=False, soft_wrap=True)
    _clear(path)
    serving = _kafka(records, show) if system == "kafka" else _pulsar(broker, records, show)
    with serving as (url, topic):
        group = "group" if system == "kafka" else "subscription"
        config = CONFIG.format(url=url, topic=topic, group=group, path=path.absolute())
        file = path.with_name(path.name + ".toml")
        file.write_text(config, encoding="utf-8")
        show.print(f"\n[bold]fastwire-consume run {file} --until-end[/bold]\n")
        show.print(config, style="dim", markup=False)
        usage = _run(["run", str(file), "--until-end"], "the pipeline")
    _summary(path, usage, records, show)
    show.print(f"\n[bold]fastwire-consume verify {path}[/bold]\n")
    sys.stdout.flush()
    _run(["verify", str(path)], "verify")
    _five_rows(path, show)


def _clear(path: Path) -> None:
    if not path.exists():
        return
    if not (path / "_fastwire" / "dataset.json").exists() and any(path.iterdir()):
        raise DemoFailed(f"{path} exists and is no dataset: give another --path")
    shutil.rmtree(path)


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "fastwire_daemon.cli", *arguments]


def _run(arguments: list[str], what: str) -> _Usage:
    """Run one of our own commands to its end, with its output where ours goes."""
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
def _pulsar(broker: Literal["embedded", "real"], records: int, show: Console) -> Iterator[tuple[str, str]]:
    """URL and topic of a Pulsar broker that has the records."""
    with _broker(broker, show) as url:
        topic = TOPICS["pulsar"]
        if broker == "real":
            url, admin = url.split(" ")
            topic = f"{topic}-{time.time_ns():x}"
            _create_topic(admin, topic)
        _produce(url, topic, records, show)
        yield url, topic


@contextmanager
def _kafka(records: int, show: Console) -> Iterator[tuple[str, str]]:
    """URL and topic of an embedded Kafka broker that has the records; it lives in this process."""
    show.print("Starting the embedded broker …")
    topic = TOPICS["kafka"]
    load = Load(records=records, partitions=PARTITIONS, compression=Compression.LZ4)
    with running(KafkaDevBroker()) as broker:
        broker.create_topic(topic, PARTITIONS)
        started = time.monotonic()
        done = 0
        with _producing(records, show) as progress:
            for partition, batch, count in load.batches(lambda: time.time_ns() // 1_000_000):
                broker.append(topic, [batch], partition)
                done += count
                progress(done)
        _say_produced(done, load, topic, started, show)
        yield broker.url, topic


@contextmanager
def _producing(records: int, show: Console) -> Iterator[Callable[[int], None]]:
    """A line that says how many records there are so far."""
    with show.status("") as status:
        yield lambda done: status.update(f"Producing: {done:,} of {records:,} records")


def _say_produced(records: int, load: Load, topic: str, started: float, show: Console) -> None:
    show.print(
        f"Produced {records:,} JSON records of about {load.record_bytes} bytes in lz4 batches over"
        f" {PARTITIONS} partitions of {topic} in {time.monotonic() - started:.1f} s."
    )


@contextmanager
def _broker(kind: Literal["embedded", "real"], show: Console) -> Iterator[str]:
    """The URL of a broker that ends with the block; of a real one the admin URL follows after a blank."""
    if kind == "real":
        tree = Path(__file__).parent.parent
        if not (tree / "tests" / "brokers" / "pulsar.py").exists():
            raise DemoFailed("a real broker can be started from the source tree only")
        show.print("Starting a real Pulsar broker (the first time it is downloaded) …")
        command, folder = [sys.executable, "-m", "tests.brokers.pulsar"], tree
    else:
        show.print("Starting the embedded broker …")
        command, folder = _command(["dev-broker", "pulsar", "--port", "0", "--partitions", str(PARTITIONS)]), Path.cwd()
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield _read_address(process, kind)
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


def _read_address(process: "subprocess.Popen[str]", kind: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if kind == "real" and line.startswith("{"):
            found = json.loads(line)
            return f"{found['url']} {found['admin']}"
        for word in line.split():
            if word.startswith("pulsar://"):
                return word
    raise DemoFailed(f"the broker did not start (exit code {process.wait()})")


def _create_topic(admin: str, topic: str) -> None:
    name = topic.removeprefix("persistent://")
    request = urllib.request.Request(
        f"{admin}/admin/v2/persistent/{name}/partitions",
        data=str(PARTITIONS).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30):
            pass
    except (urllib.error.URLError, OSError) as exc:
        raise DemoFailed(f"the topic cannot be created: {exc}") from exc


def _produce(url: str, topic: str, records: int, show: Console) -> None:
    load = Load(records=records, partitions=PARTITIONS, compression=Compression.LZ4)
    entries = load.entries(lambda: time.time_ns() // 1_000_000)
    started = time.monotonic()
    with _producing(records, show) as progress:
        produced = asyncio.run(produce(client_settings(url), topic, entries, progress=progress))
    _say_produced(produced.records, load, topic, started, show)


def _summary(path: Path, usage: _Usage, records: int, show: Console) -> None:
    import pyarrow.dataset as ds

    data = ds.dataset(path, format="parquet", partitioning="hive")
    files = data.files
    size = sum(os.path.getsize(file) for file in files)
    rows = data.count_rows()
    show.print(
        f"\n{rows:,} rows in {len(files)} file{'' if len(files) == 1 else 's'}, {format_bytes(size)};"
        f" {rows / usage.wall_s:,.0f} records a second from start to exit ({usage.wall_s:.1f} s);"
        f" CPU {usage.cpu_s / max(rows, 1) * 1e6:.2f} µs a record ({usage.cpu_s:.1f} s, start and imports included);"
        f" peak memory {format_bytes(usage.peak_bytes)}."
    )
    if rows != records:
        raise DemoFailed(f"{records:,} records were produced, {rows:,} are in the files")


def _five_rows(path: Path, show: Console) -> None:
    import pyarrow.dataset as ds

    data = ds.dataset(path, format="parquet", partitioning="hive")
    show.print(f"\n[bold]Five rows of {path}[/bold] (of {len(data.schema)} columns: {', '.join(data.schema.names)})\n")
    for row in data.head(5).to_pylist():
        names = ("ledger", "offset", "batchIndex")  # a record's place, as far as the system has them
        place = f"{row['partition']} {':'.join(str(row[name]) for name in names if name in row)}"
        line = f"{place}  {row['timestamp']:%H:%M:%S.%f}  {_text(row['key'])}  {_text(row['value'])}"
        show.print(line, markup=False)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
