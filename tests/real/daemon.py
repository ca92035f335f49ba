"""The daemon as a child process, driven by its configuration file and command line alone."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fastwire_daemon.service.client import NoDaemonError
from tests.support.nursery import Forked, Nursery, shared

ROOT = Path(__file__).parents[2]
CHILD = ROOT / "tests" / "crash" / "child.py"
RUN_LIMIT = 90.0  # seconds for one run; a hang ends there with the child's log in the message


@dataclass(frozen=True)
class Job:
    """One pipeline from one topic into one dataset; the tables add keys of their own, replace or (None) drop ours."""

    url: str
    topic: str
    path: Path
    subscription: str = "landing"
    kind: str = "failover"
    start: str = "earliest"
    source: dict[str, Any] = field(default_factory=dict)
    sink: dict[str, Any] = field(default_factory=dict)
    roll: dict[str, Any] = field(default_factory=dict)
    decode: dict[str, Any] = field(default_factory=dict)
    daemon: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """The configuration as TOML."""
        tables: dict[str, dict[str, Any]] = {
            # No port: many of these run at once.
            "daemon": {"http": "", "memory": "256MiB", **self.daemon},
            "pipelines.p.source": {
                "url": self.url,
                "topics": [self.topic],
                "subscription": self.subscription,
                "subscription_type": self.kind,
                "start": self.start,
                **self.source,
            },
            "pipelines.p.sink": {"type": "parquet", "path": str(self.path), **self.sink},
            "pipelines.p.sink.roll": {"idle": "1s", **self.roll},
        }
        if self.decode:
            tables["pipelines.p.decode"] = self.decode
        return "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items() if value is not None)
            for name, table in tables.items()
        )

    def write(self, folder: Path) -> Path:
        """The configuration file, under a name of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.subscription}-{time.monotonic_ns()}.toml"
        file.write_text(self.text())
        return file


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Path):
        return json.dumps(str(value))
    return json.dumps(value)  # strings and numbers are the same in TOML


def command(*arguments: str, script: dict[str, Any] | None = None) -> list[str]:
    """Return the command of ``fastwire-consume``; with a ``script`` for :mod:`tests.crash.child`, which obeys it."""
    if script is None:
        return [sys.executable, "-m", "fastwire_daemon.cli", *arguments]
    return [sys.executable, str(CHILD), json.dumps(script), *arguments]


class Daemon:
    """One run of the command; ends with the test at the latest. Use as a context manager.

    It is forked in ``nursery``, or the shared one, which is quicker, unless a ``prefix`` asks for a process of its own.
    """

    def __init__(
        self,
        *arguments: str,
        log: Path,
        script: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        nursery: Nursery | None = None,
    ) -> None:
        self.log = log
        log.touch()
        self.process: subprocess.Popen[bytes] | Forked
        if not prefix:
            with open(os.devnull, "rb") as nothing, log.open("ab") as out:
                self.process = (nursery or shared()).fork(arguments, env or {}, (nothing, out, out), script)
            return
        with log.open("ab") as out:
            # The kernel ends the child with its parent, also when that is killed, and also a stopped child.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *prefix, *command(*arguments, script=script)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        """Everything the child has written, to both of its outputs."""
        return self.log.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """The log lines that are JSON."""
        lines = (line for line in self.output.splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]

    def wait(self, limit: float = RUN_LIMIT) -> int:
        """The exit code, negative for a signal; fails with the log when the child hangs."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon did not end within {limit:.0f} s:\n{self.hung()}") from None

    def wait_done(self, limit: float = RUN_LIMIT) -> None:
        """Wait for the end; fail, with the log, unless the exit code is 0."""
        code = self.wait(limit)
        assert code == 0, f"exit code {code}:\n{self.tail()}"

    def end(self, limit: float = RUN_LIMIT) -> None:
        """Ask it to end, as systemd does, and wait until it has, in good order."""
        self.process.terminate()
        self.wait_done(limit)

    def wait_stopped(self, limit: float = RUN_LIMIT) -> bool:
        """Wait until the child has stopped itself (SIGSTOP); False if it has ended instead."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return False
            if _state(self.process.pid) == "T":
                return True
            time.sleep(0.005)
        raise AssertionError(f"the daemon neither stopped nor ended within {limit:.0f} s:\n{self.tail()}")

    def wait_until(
        self, condition: Callable[[], object], what: str, limit: float = RUN_LIMIT, *, pause_s: float = 0.02
    ) -> None:
        """Wait until ``condition`` holds; fail, with the log and ``what`` is missing, if the child ends before.

        A daemon that is asked and has not answered yet, as on a busy machine, is asked again.
        """
        deadline = time.monotonic() + limit
        while True:
            with contextlib.suppress(NoDaemonError):
                if condition():
                    return
            assert self.process.poll() is None, f"the daemon ended before {what}:\n{self.tail()}"
            assert time.monotonic() < deadline, f"not within {limit:.0f} s: {what}:\n{self.hung()}"
            time.sleep(pause_s)

    def wait_for(self, text: str, limit: float = RUN_LIMIT) -> None:
        """Wait until ``text`` is in the output."""
        self.wait_until(lambda: text in self.output, f"it said {text!r}", limit)

    def wait_for_rows(self, count: int, limit: float = RUN_LIMIT) -> None:
        """Wait until ``count`` rows have been committed."""
        self.wait_until(lambda: self.committed() >= count, f"{count} rows were committed", limit)

    def committed(self) -> int:
        """Rows of all commits so far."""
        return sum(event.get("rows", 0) for event in self.events() if event.get("event") == "committed")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child alone."""
        self.process.send_signal(number)

    def hung(self) -> str:
        """The last lines of the log, and the stacks of the child."""
        tail, before = self.tail(), len(self.output)
        if isinstance(self.process, Forked):
            self.process.hung(lambda: self.output[before:])
        return f"{tail}\n{self.output[before:]}"

    def tail(self, lines: int = 40) -> str:
        """The last lines of the log."""
        return "\n".join(self.output.splitlines()[-lines:])


def _state(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def ask(address: Path, page: str) -> str:
    """Return a daemon's answer on its unix socket; nothing while it does not listen."""
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(address))
        except OSError:
            return ""
        line.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        answer = b""
        while piece := line.recv(1 << 16):
            answer += piece
    return answer.decode().partition("\r\n\r\n")[2]


def verify(path: Path | str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Return the report of ``fastwire-consume verify`` about a dataset."""
    return shared().run("verify", path, *arguments, env=env, limit=RUN_LIMIT)
