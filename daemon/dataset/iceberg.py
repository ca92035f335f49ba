"""Iceberg as a format of tables: asks a process of its own, which has the library of the format."""

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from fastwire.decode.evolution import Column

from .storage import Storage
from .tableformat import AddedFile, Seen, TableRacedError, TableStoppedError
from .tableschema import field, plain_type

__all__ = ["IcebergTable"]

_MAIN = "from fastwire_daemon.dataset.icebergworker import main; main()"
# The longest time for an answer, in seconds: a start of the process takes some of it. Records land only behind it.
_PATIENCE = 90.0
_END_S = 5.0


class _Process:
    """The process with the library: started by the first request, again after its death, and ended with this one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the answer to a request. Raises TableRacedError and TableStoppedError."""
        with self._guard:
            process = self._started()
            try:
                line = self._exchange(process, json.dumps(request).encode() + b"\n")
            except BaseException as exc:
                self._end(kill=True)
                if isinstance(exc, OSError):
                    raise TableStoppedError(f"the process that commits to it has ended: {exc}") from exc
                raise
        answer = json.loads(line)
        if "raced" in answer:
            raise TableRacedError(answer["raced"])
        if "stopped" in answer:
            raise TableStoppedError(answer["stopped"])
        return answer["answer"]

    def end(self) -> None:
        """End the process after its request."""
        with self._guard:
            self._end()

    def _started(self) -> "subprocess.Popen[bytes]":
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            self._rest = b""
            # In a group of its own, a Ctrl-C reaches it only through this process.
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", _MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        return process

    def _exchange(self, process: "subprocess.Popen[bytes]", request: bytes) -> bytes:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        end = time.monotonic() + _PATIENCE
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no answer within {_PATIENCE:.0f} s")
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    raise OSError(f"exit code {process.wait()}")
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        if kill:
            process.kill()
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


# One for all tables of this process: each takes 100 MiB.
_PROCESS = _Process()
atexit.register(_PROCESS.end)


class IcebergTable:
    """The Iceberg table of the dataset in ``storage`` whose id is ``owner``, in a ``catalog`` (see CatalogConfig).

    Errors of the catalog and of the process are TableStoppedError: they keep no record from landing.
    """

    title = "Iceberg"
    location: str
    """The URL of the dataset that is in the table."""

    def __init__(self, storage: Storage, owner: str, catalog: Mapping[str, str]) -> None:
        self.url = catalog["table"]
        self.location = _location(storage.root, storage.access)
        place = {"root": storage.root, "location": self.location, "store": dict(storage.access)}
        self._request = {"table": {**catalog, **place}, "owner": owner, "client": uuid4().hex}

    def type_of(self, column: Column) -> object:
        """Return the type of ``column`` as the process reports it."""
        return plain_type(column, sized=True)

    def forget(self) -> None:
        """Do nothing: each look reads the table from the catalog."""

    def look(self) -> Seen | None:
        """Return the table as it is now; None if there is none."""
        found = self._ask("look")
        if found is None:
            return None
        trouble = f"the Iceberg table {self.url}: {found['trouble']}" if found["trouble"] else ""
        return Seen(
            found["version"],
            found["upto"],
            found["types"],
            tuple(found["strict"]),
            tuple(found["partitions"]),
            trouble,
        )

    def settle(self, version: int) -> None:
        """Do nothing: the process makes its files durable before a commit names them."""

    def create(self, columns: Sequence[Column], partitions: Sequence[str]) -> None:
        """Create the table with these columns. Raises TableRacedError if there is one now."""
        self._ask("create", fields=_fields(columns), partitions=list(partitions))

    def add_columns(self, columns: Sequence[Column]) -> None:
        """Add columns to the table as it was seen last. Raises TableRacedError."""
        self._ask("add columns", fields=_fields(columns))

    def add(self, files: Sequence[AddedFile], first: int, upto: int) -> None:
        """Add the files of log entries ``first`` to ``upto`` to the table as it was seen last. Raises TableRacedError.

        In the same commit the table notes ``upto``.
        """
        described = [
            {"path": f"{self.location}/{each.name}", "nbytes": each.nbytes, "rows": each.rows, "values": each.values}
            for each in files
        ]
        self._ask("add", files=described, first=first, upto=upto)

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return the files of the table as it was seen last: size in bytes and rows (None: unknown), by name."""
        found, prefix = self._ask("files"), f"{self.location}/"
        known = bool(found["rows"])
        return {path.removeprefix(prefix): (size, rows if known else None) for path, size, rows in found["files"]}

    def _ask(self, do: str, **facts: Any) -> Any:
        try:
            return _PROCESS.ask({**self._request, "do": do, **facts})
        except TableStoppedError as exc:
            raise TableStoppedError(f"the Iceberg table {self.url}: {exc}") from exc


def _location(root: str, access: Mapping[str, str]) -> str:
    """Return the URL of the dataset at ``root`` that is in tables: one that other programs have for the same place."""
    if "://" not in root:
        return f"file://{Path(root).absolute()}"
    if not root.startswith("az://"):
        return root
    # They want the account, and a host of this form, wherever the service is.
    account = access.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    host = urlsplit(access.get("endpoint", "")).hostname or ""
    _, dot, domain = host.partition(".blob.")
    container, _, prefix = root.removeprefix("az://").partition("/")
    return f"abfss://{container}@{account}.dfs.{domain if dot else 'core.windows.net'}/{prefix}".rstrip("/")


def _fields(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [field(column, sized=True) for column in columns]
