"""A server as a process: started with programs from the cache, stopped as gently or as hard as a test wants."""

import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from tests.brokers.maven import BrokerUnavailableError

START_LIMIT = 300.0  # seconds; 6 on an idle machine with two cores, over 90 where many others work
STOP_LIMIT = 15.0  # the broker's own orderly end takes 5 to 10


class ServerProcess(ABC):
    """One server process with its folder; ``start`` and ``stop`` may follow each other on the same data and ports.

    It must be started on the main thread: the kernel takes the end of the starting thread for the end of the parent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_path = folder / "broker.log"
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Write what the server reads, and return the command that runs it."""

    @abstractmethod
    def healthy(self) -> bool:
        """Return whether it serves clients by now."""

    def start(self) -> Self:
        """Start the server and wait until it is healthy."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start the server; ``wait`` follows."""
        if self.process is not None:
            raise RuntimeError("the server runs already")
        self.folder.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*ends_with_parent(), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )

    def wait(self) -> Self:
        """Wait until the server is healthy."""
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, at_once: bool = False) -> None:
        """End the server; ``at_once`` kills it as a power switch would. Data stays for the next ``start``."""
        process, self.process = self.process, None
        if process is None:
            return
        if not at_once:
            process.terminate()
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                pass
        if process.poll() is None:
            process.kill()
        process.wait()

    def restart(self, *, at_once: bool = False) -> None:
        """Stop and start on the same data and the same ports."""
        self.stop(at_once=at_once)
        self.start()

    def remove_data(self) -> None:
        """Delete what the server stored; its log and configuration stay for whoever looks for a failure's cause."""
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _wait_until_healthy(self) -> None:
        limit = time.monotonic() + START_LIMIT
        while not self.healthy():
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"the server ended while it started:\n{self._last_lines()}")
            if time.monotonic() > limit:
                raise RuntimeError(f"the server was not healthy after {START_LIMIT:.0f} s:\n{self._last_lines()}")
            time.sleep(0.1)

    def _last_lines(self, count: int = 30) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-count:])


class JavaBroker(ServerProcess):
    """A broker in Java, with jars from the cache."""


def ends_with_parent() -> list[str]:
    """A prefix that makes the kernel kill the command when the thread that started it is gone.

    Where this process has ended before the kernel is told so, the command is not run at all.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise BrokerUnavailableError("no setpriv to tie the server to this process: apt-get install util-linux")
    return [setpriv, "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
