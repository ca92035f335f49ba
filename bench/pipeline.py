"""A pipeline of the daemon, and pulsar-client, as child processes over the replaying server: a row of figures each."""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .child import Case, Child, run, run_program, serving

CONFIG = """
[daemon]
memory = "512MiB"
http = ""

[pipelines.bench.source]
url = "{url}"
topics = ["{topic}"]
subscription = "bench"
subscription_type = "{kind}"
start = "earliest"

[pipelines.bench.sink]
{sink}
"""
CHECKED = "raw socket with CRC"
ROUNDS = 3

Figures = Mapping[str, Any]


def least_disturbed(turn: Callable[[], Iterator[tuple[str, Figures]]], rounds: int = ROUNDS) -> dict[str, Figures]:
    """Let all consumers of ``turn`` take turns; return of each, by its name, the run that took the least CPU."""
    best: dict[str, Figures] = {}
    for _ in range(rounds):
        for who, figures in turn():
            if who not in best or figures["cpu_us_per_row"] < best[who]["cpu_us_per_row"]:
                best[who] = figures
    return best


def configured(told: Mapping[str, Any], sink: str, folder: Path, kind: str = "exclusive") -> Path:
    """A configuration file in ``folder``; ``kind`` is the type of the subscription."""
    config = folder / "bench.toml"
    config.write_text(CONFIG.format(url=told["url"], topic=told["topic"], sink=sink, kind=kind))
    return config


def ours(told: Mapping[str, Any], sink: str, folder: Path, kind: str = "exclusive") -> dict[str, Any]:
    """Measure the daemon by its own figures, and its memory as the kernel saw it."""
    return landed(told, configured(told, sink, folder, kind), folder)


def landed(told: Mapping[str, Any], config: Path, folder: Path) -> dict[str, Any]:
    """The same with a configuration of its own."""
    child = run(["-m", "fastwire_daemon.cli", "run", str(config), "--until-end"], folder)
    if child.code:
        raise SystemExit(f"the daemon ended with {child.code}:\n{child.error[-2000:]}")
    figures = child.last("cpu_us_per_row")
    assert figures["rows"] == told["messages"], figures
    return {**figures, "peak_rss_mib": child.peak_rss_mib, "process_cpu_s": child.cpu_s}


def theirs(told: Mapping[str, Any], messages: int, how: str, where: str, folder: Path) -> dict[str, Any]:
    """The same for pulsar-client, which stops after ``messages``."""
    child = run(["-m", "bench.peer", told["url"], told["topic"], str(messages), how, where], folder)
    return _figures("pulsar-client", child)


def others(told: Mapping[str, Any], messages: int, command: Sequence[str], folder: Path) -> dict[str, Any]:
    """The same for a consumer in another language, which stops after ``messages``."""
    child = run_program([*command, told["url"], told["topic"], str(messages)], folder)
    return _figures(command[-1], child)


def _figures(who: str, child: Child) -> dict[str, Any]:
    """Return the figures of a peer that has ended."""
    if child.code:
        raise SystemExit(f"{who} ended with {child.code}:\n{child.error[-2000:]}")
    return told_by(child)


def raw(told: Mapping[str, Any], case: Case, folder: Path, *, checked: bool = False) -> dict[str, Any]:
    """The same for a socket that is read without looking into the frames, or only to compute their CRC-32C."""
    sizes = (str(told["messages"]), str(case.batch))
    command = ["-m", "bench.raw_socket", told["url"], told["topic"], *sizes, *(["crc"] if checked else [])]
    child = run(command, folder)
    return told_by(child)


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder that goes with the block."""
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
        yield Path(folder)


def told_by(child: Child) -> dict[str, Any]:
    """The figures of a consumer that has ended."""
    return {**child.last("cpu_us_per_row"), "peak_rss_mib": child.peak_rss_mib}


@contextmanager
def reading(told: Mapping[str, Any], case: Case) -> Iterator[None]:
    """The server sends all the time: to a bare socket, over and over."""
    over = threading.Event()

    def read() -> None:
        with temporary() as folder:
            while not over.is_set():
                raw(told, case, folder)

    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(read)
        try:
            yield
        finally:
            over.set()
    reader.result()


def by_itself(who: str, system: str, folder: Path) -> dict[str, Any]:
    """The same for "pyarrow" writing the very rows of the dataset in ``folder``, or for their "codec"."""
    child = run(["-m", "bench.parquet_alone", system, f"{folder}/dataset", who], folder)
    return told_by(child)


def row(bench: str, case: Case, who: str, figures: Figures, first: Figures | None) -> dict[str, Any]:
    """Return the figures of a consumer, beside the ``first`` of the run, which is fastwire."""
    cpu = figures["cpu_us_per_row"]
    found = {
        "bench": bench,
        **case.fields(),
        "who": who,
        "cpu_us_per_message": round(cpu, 3),
        "messages_per_s": figures["rows_per_s"],
        "payload_mb_per_s": round(figures["rows_per_s"] * case.size / 1e6),
        "peak_rss_mib": figures["peak_rss_mib"],
        "messages": figures["rows"],
        "times_our_cpu": round(cpu / first["cpu_us_per_message"], 1) if first else 1.0,
    }
    if "limit" in figures:
        found["limit"] = figures["limit"]
    if figures.get("file_bytes"):
        found["file_bytes_per_message"] = round(figures["file_bytes"] / figures["rows"], 1)
    return found


def compare(
    bench: str,
    case: Case,
    told: Mapping[str, Any],
    their_messages: int,
    ways: Sequence[str],
    sinks: Mapping[str, str],
    *,
    alone: bool = False,
    floor: bool = False,
    peers: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """Measure the daemon and its peers on what ``told`` serves: CPU a message, and its ratio to that of the first.

    ``ways`` are pulsar-client's; ``sinks`` are the daemon's, with a name for each, in which {folder} is a temporary
    folder. ``alone`` adds pyarrow writing the very rows of the daemon's files, with the machine for itself and beside a
    socket that is read, as the daemon's encoder is, then the codec and a socket with CRC, all in turns with the daemon;
    ``floor`` adds the bare socket. ``peers`` are the commands of consumers in other languages, with a name for each;
    they get ten times the messages.
    """
    rows: list[dict[str, Any]] = []

    def add(who: str, figures: Figures) -> None:
        rows.append(row(bench, case, who, figures, rows[0] if rows else None))

    def turn() -> Iterator[tuple[str, Figures]]:
        for name, sink in sinks.items():
            with temporary() as folder:
                yield name, ours(told, sink.format(folder=folder), folder)
                if alone and name == list(sinks)[-1]:
                    yield "pyarrow alone", by_itself("pyarrow", "pulsar", folder)
                    with reading(told, case):
                        yield "pyarrow beside a reader", by_itself("pyarrow", "pulsar", folder)
                    yield "codec alone", by_itself("codec", "pulsar", folder)
                    yield CHECKED, raw(told, case, folder, checked=True)

    for who, figures in least_disturbed(turn, ROUNDS if alone else 1).items():
        add(who, figures)
    if floor:
        with temporary() as folder:
            add("raw socket", raw(told, case, folder))
    for how in ways:
        with temporary() as folder:
            where = f"{folder}/out.parquet" if any("{folder}" in sink for sink in sinks.values()) else "discard"
            messages = min(their_messages, told["messages"])
            add(f"pulsar-client {how}", theirs(told, messages, how, where, folder))
    for who, command in (peers or {}).items():
        with temporary() as folder:
            add(who, others(told, min(10 * their_messages, told["messages"]), command, folder))
    return rows


def consume(
    bench: str,
    case: Case,
    messages: int,
    their_messages: int,
    ways: Sequence[str],
    sinks: Mapping[str, str],
    *,
    alone: bool = False,
    floor: bool = False,
    peers: Mapping[str, Sequence[str]] | None = None,
) -> list[dict[str, Any]]:
    """``compare`` over the replaying server with so many messages."""
    with serving(case, messages) as told:
        return compare(bench, case, told, their_messages, ways, sinks, alone=alone, floor=floor, peers=peers)
