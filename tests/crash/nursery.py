"""A process that has imported the whole daemon and forks one whenever a test wants one.

An interpreter with everything imported takes a second of processor time to start, and the crash tests start hundreds.
What is forked runs the same command line as what is executed; only the imports are behind it.
"""

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Forked", "Nursery"]

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1


class Forked:
    """A child of the nursery, with what tests use of ``subprocess.Popen``."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises TimeoutExpired."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                answer = self._connection.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("forked daemon", timeout or 0) from None
            finally:
                self._connection.settimeout(None)
            if not answer:
                raise RuntimeError("the nursery has ended")
            self.returncode = int(answer)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended: the nursery may know that a moment before we do."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Starts the process, with the library ``preload`` if given; ``fork`` asks it for a child. A context manager."""

    def __init__(self, preload: Path | None = None) -> None:
        env = {} if preload is None else {"LD_PRELOAD": str(preload)}
        self._folder = tempfile.TemporaryDirectory(prefix="fw-nursery-")
        self._address = f"{self._folder.name}/socket"
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.crash.nursery", self._address],
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the nursery did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def fork(self, arguments: tuple[str, ...], script: dict[str, Any] | None, log: Path, env: dict[str, str]) -> Forked:
        """A child that runs the command line, with the accident of ``script`` (see ``tests.crash.child``) built in."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._address)
        request = {"arguments": arguments, "script": script, "log": str(log), "env": env}
        connection.send(json.dumps(request).encode())
        return Forked(connection, int(connection.recv(64)))


def serve(address: str) -> None:
    """Fork on request, until killed; returns in each child."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in waiting.select():
            if key.data is None:
                connection, _ = listener.accept()
                request = json.loads(connection.recv(65_536))
                pid = os.fork()
                if not pid:
                    waiting.close()
                    listener.close()
                    connection.close()
                    become(request)
                    return
                connection.send(b"%d" % pid)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (connection, pid))
            else:
                connection, pid = key.data
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                try:
                    connection.send(b"%d" % code)
                except OSError:
                    pass  # nobody wants to know any more
                connection.close()


def become(request: dict[str, Any]) -> None:
    """Make this process the child that was asked for."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["env"])
    sys.argv = ["fastwire-consume", *request["arguments"]]
    if request["script"] is not None:
        install(request["script"])


if __name__ == "__main__":
    from fastwire_daemon.cli.app import main
    from tests.crash.child import install

    for name in ("service", "sinks.dataset", "encoders.parquet"):
        importlib.import_module(f"fastwire_daemon.{name}")
    serve(sys.argv[1])
    main()
