"""A private PostgreSQL server of Debian's packages, run by an unprivileged user."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psutil

from tests.brokers.ports import free_ports

MISSING = "no PostgreSQL server: apt-get install postgresql"
START_S = 60.0
_USER = "nobody"  # a server refuses to run as root


def binaries() -> Path | None:
    """The folder with initdb and postgres, of the newest version that is installed; None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).resolve().parent


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement on a connection of its own."""
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


class Postgres:
    """One cluster; ``settings`` are those of the server. With ``copy_of`` it is a replica of that one."""

    def __init__(self, programs: Path, copy_of: "Postgres | None" = None, **settings: str) -> None:
        self._programs = programs
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="fastwire-pg-"))
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": _USER, "group": "nogroup", "extra_groups": []}
            shutil.chown(self.folder, _USER, "nogroup")
        if copy_of is not None:
            primary = f"host=127.0.0.1 port={copy_of.port} user=loader application_name=replica"
            self._run("pg_basebackup", "-D", str(self.folder / "data"), "-R", "-c", "fast", "-d", primary)
            return
        self._run("initdb", "-D", str(self.folder / "data"), "-U", "loader", "-A", "trust", "--no-sync", "-E", "UTF8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """The URL of a database, for a superuser."""
        return f"postgresql://loader@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """The number of the postmaster."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """The log of the server."""
        return (self.folder / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",  # the machine is not switched off in a test
            **self._settings,
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", *flags],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._as,
            )
        until = time.monotonic() + START_S
        while subprocess.run(
            [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
        ).returncode:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: SIGINT as an operator does, SIGQUIT at once, SIGKILL as a crash."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGCONT)
        process.send_signal(how)
        process.wait(60)
        for child in children if how == signal.SIGKILL else ():
            if child.is_running():
                child.kill()
        psutil.wait_procs(children, 60)

    def promote(self) -> None:
        """Make a primary of a replica."""
        self._run("pg_ctl", "promote", "-w", "-D", str(self.folder / "data"))

    def crash(self) -> None:
        """Kill the postmaster and all of its processes, and start it again."""
        self.stop(signal.SIGKILL)
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server, as a machine that hangs."""
        parent = psutil.Process(self.pid)
        stopped = [parent, *parent.children(recursive=True)]
        for each in stopped:
            each.suspend()
        try:
            yield
        finally:
            for each in stopped:
                if each.is_running():
                    each.resume()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self._as,
        )
        assert done.returncode == 0, done.stdout + done.stderr
