"""Server and consumer of a bench as child processes, with the resources that they used; results as rows."""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOOK_S = 0.02  # between two looks at the memory of a child
PEERS = (
    "pulsar-client",
    "confluent-kafka",
    "aiokafka",
    "pyarrow",
    "uvloop",
    "cython",
    "crc32c",
    "cramjam",
    "zstandard",
    "protobuf",
)


@dataclass(frozen=True)
class Case:
    """The shape of the messages of one measurement; ``batch`` 1 means entries without a batch around them."""

    size: int
    batch: int
    codec: str

    def __str__(self) -> str:
        return f"{self.size} B x {self.batch} {self.codec}"

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def cases() -> list[Case]:
    """Those with targets; all sizes, batches and codecs with ``--all``."""
    if "--all" not in sys.argv:
        return [Case(100, 1000, "none"), Case(100, 1000, "lz4"), Case(1024, 1000, "none"), Case(100, 1, "none")]
    return [
        Case(size, batch, codec) for batch in (1000, 1) for size in (100, 1024) for codec in ("none", "lz4", "zstd")
    ]


@dataclass(frozen=True)
class Child:
    """A process that has ended: what it printed and what it used."""

    code: int
    out: str
    error: str
    cpu_s: float
    peak_rss_mib: float

    def last(self, key: str) -> dict[str, Any]:
        """The last line of JSON with ``key`` in it, on either stream."""
        for line in reversed((self.out + self.error).splitlines()):
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                if key in found:
                    return found
        raise SystemExit(f"no line with {key!r} came from a child that ended with {self.code}:\n{self.error[-2000:]}")


def run(command: Sequence[str], folder: Path) -> Child:
    """Run Python with this command line to its end."""
    return run_program([sys.executable, *command], folder)


def run_program(command: Sequence[str], folder: Path) -> Child:
    """Run a command to its end; what it prints goes through files in ``folder``, so that it never waits for us."""
    out, error = folder / "out.txt", folder / "error.txt"
    with out.open("wb") as out_file, error.open("wb") as error_file:
        # An installed program has its byte code: the first of several runs writes it.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        process = subprocess.Popen(command, cwd=ROOT, stdout=out_file, stderr=error_file, env=environ)
        peak = 0.0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = high_water_mib(process.pid) or peak
            time.sleep(LOOK_S)
        _, status, used = ended
        process.returncode = os.waitstatus_to_exitcode(status)
    return Child(
        process.returncode,
        out.read_text(),
        error.read_text(),
        used.ru_utime + used.ru_stime,
        peak or round(used.ru_maxrss / 1024, 1),
    )


def high_water_mib(process: int) -> float:
    """Return the highest resident memory of a process so far, 0 if it cannot be read.

    That of ``wait4`` begins with the memory of the parent, which may hold the records of a broker.
    """
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return 0.0 if found is None else round(int(found[1]) / 1024, 1)


@contextmanager
def serving(
    case: Case, messages: int, partitions: int = 4, *, server: str = "varied_server"
) -> Iterator[Mapping[str, Any]]:
    """A replaying server with ``messages`` of a kind, in a process of its own; gives what it says of itself."""
    batch = 0 if case.batch == 1 else case.batch
    command = [sys.executable, "-m", f"bench.{server}"]
    for name, value in (("messages", messages), ("size", case.size), ("batch", batch), ("partitions", partitions)):
        command += [f"--{name}", str(value)]
    process = subprocess.Popen([*command, "--codec", case.codec], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=30)


def spark_is_here(*programs: str) -> bool:
    """Return whether there are PySpark, a Java and these; print what is missing."""
    missing = [program for program in ("java", *programs) if shutil.which(program) is None]
    if importlib.util.find_spec("pyspark") is None:
        missing.append("PySpark")
    if missing:
        print(f"without {' and '.join(missing)} nothing is measured", file=sys.stderr)
    return not missing


def machine() -> dict[str, Any]:
    """Return the machine and the versions of a measurement."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),  # of others, before we begin
        "kernel": platform.release(),
        "python": platform.python_version(),
        **{name: _version(name) for name in PEERS},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of figures as aligned text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows as JSON lines if the command line says --json, else as a table."""
    if "--json" not in sys.argv:
        print(table(rows))
        return
    for row in rows:
        print(json.dumps(row), flush=True)
