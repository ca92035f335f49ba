"""A process that has imported the whole daemon and forks one whenever a test wants one.

An interpreter with everything imported takes a second of processor time to start, and the tests start hundreds.
What is forked runs the same command line as what is executed; only the imports are behind it, and the construction of
the models of the configuration, which is done at their first use.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support import stacks
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1
STACKS_S = 10.0
DAEMON = ("service", "sinks.dataset", "encoders.parquet", "systems", "cli.stores", "dataset.proof.verify")
CONFIG = """
[pipelines.p.source]
url = "{system}://127.0.0.1:1"
topics = ["t"]
start = "earliest"
{reader}
[pipelines.p.sink]
type = "parquet"
path = "data"
"""
READERS = {"pulsar": 'subscription = "s"', "kafka": 'group = "g"', "tank": "", "tubemq": 'group = "group"'}


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

    def hung(self, written: Callable[[], str]) -> str:
        """Return ``written()`` once the stacks of the child are in it, which it writes to its standard error."""
        self.send_signal(stacks.ASKED)
        with contextlib.suppress(AssertionError):  # a process that is stopped, or has ended, writes nothing
            eventually(lambda: stacks.END in written(), patience_s=STACKS_S)
        return written()

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
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.support.nursery", self._address],
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

    def fork(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        streams: tuple[IO[bytes], IO[bytes], IO[bytes]],
        script: dict[str, Any] | None = None,
    ) -> Forked:
        """A child that runs the command line, with the accident of ``script`` (see ``tests.crash.child``) built in.

        ``streams`` are its standard input, output and error.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self._address)
        request = {"arguments": arguments, "script": script, "env": dict(env)}
        socket.send_fds(connection, [json.dumps(request).encode()], [stream.fileno() for stream in streams])
        return Forked(connection, int(connection.recv(64)))

    def run(
        self,
        *arguments: str | Path,
        given: str | bytes = b"",
        env: Mapping[str, str] | None = None,
        limit: float = 90.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line to its end, within ``limit`` seconds, with ``given`` as standard input.

        The error of one that hangs has a note with what it has written, and its stacks.
        """
        words = [str(each) for each in arguments]
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(given.encode() if isinstance(given, str) else given)
            files[0].seek(0)
            child = self.fork(words, env or {}, (files[0], files[1], files[2]))

            def said(file: IO[bytes]) -> str:
                return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="surrogateescape")

            try:
                code = child.wait(limit)
            except BaseException as exc:  # also the limit of the test
                exc.add_note(f"{words}:\n{said(files[1])}\n{child.hung(lambda: said(files[2]))}")
                raise
            finally:
                child.kill()
                child.wait()
            return subprocess.CompletedProcess(words, code, said(files[1]), said(files[2]))


@functools.cache
def shared() -> Nursery:
    """The nursery of this process, without a library; started by the first who asks, ended with the process."""
    nursery = Nursery()
    atexit.register(nursery.__exit__, None, None, None)
    return nursery


def prepare() -> None:
    """Use the configuration and the source of each system once."""
    from fastwire_daemon.config import parse_config
    from fastwire_daemon.systems.registry import system_named

    for name, reader in READERS.items():
        config = parse_config(CONFIG.format(system=name, reader=reader))
        system_named(name).make_source(config.pipelines["p"].source)


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
                said, streams, _, _ = socket.recv_fds(connection, 65_536, 3)
                pid = os.fork()
                if not pid:
                    waiting.close()
                    listener.close()
                    connection.close()
                    become(json.loads(said), streams)
                    return
                for descriptor in streams:
                    os.close(descriptor)
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


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Make this process the child that was asked for."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    stacks.install()
    os.environ.update(request["env"])
    sys.argv = ["fastwire-consume", *request["arguments"]]
    if request["script"] is not None:
        install(request["script"])


if __name__ == "__main__":
    from fastwire_daemon.cli.app import main
    from tests.crash.child import install

    for name in DAEMON:
        importlib.import_module(f"fastwire_daemon.{name}")
    prepare()
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas")  # pyarrow loads it when a dataset is verified, if it is there
    # A child that looked for garbage among these objects would write to most pages, and copy each of them.
    gc.collect()
    gc.freeze()
    serve(sys.argv[1])
    main()
