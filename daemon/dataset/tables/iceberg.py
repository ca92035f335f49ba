"""Iceberg as a format of tables: asks a process of its own, which has the library of the format."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from fastwire.decode.evolution import Column

from ...runtime.outside import waits_for
from ..storage.base import Storage
from ..tableformat import AddedFile, Seen, TableStoppedError
from ..tableschema import field, plain_type
from .icebergprocess import ANSWER_S, Client, worker_of

# A round of requests of a caller that does not wait for the catalog.
_HASTY_S = 2.0
_OF_TABLE = ("table", "branch")
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}


class IcebergTable:
    """The Iceberg table of the dataset in ``storage`` whose id is ``owner``, in a ``catalog`` (see CatalogConfig).

    Errors of the catalog and of the process are TableStoppedError: they keep no record from landing. A ``hasty`` caller
    waits for two seconds in each round of requests, and gets TableLateError while an answer is under way.
    """

    title = "Iceberg"
    location: str
    """The URL of the dataset that is in the table."""

    def __init__(self, storage: Storage, owner: str, catalog: Mapping[str, str], *, hasty: bool = False) -> None:
        self.url = catalog["table"]
        self._hasty = hasty
        self._until = self._earlier_until = 0.0
        worker = worker_of({name: value for name, value in catalog.items() if name not in _OF_TABLE})
        self._client = Client(worker)
        self._known_as = self.location = _location(storage.root, storage.access)
        place = {"root": storage.root, "location": self.location, "store": dict(storage.access)}
        self._request = {"table": {**catalog, **place}, "owner": owner, "client": uuid4().hex}

    def type_of(self, column: Column) -> object:
        """Return the type of ``column`` as the process reports it."""
        return plain_type(column, sized=True)

    def begin(self, *, late: bool) -> None:
        """Begin a round of requests; with ``late`` a request of an earlier round is not waited for."""
        now = time.monotonic()
        self._earlier_until, self._until = now if late else now + _HASTY_S, now + _HASTY_S

    def forget(self) -> None:
        """Do nothing: each look reads the table from the catalog."""

    def look(self) -> Seen | None:
        """Return the table as it is now; None if there is none."""
        found = self._ask("look")
        if found is None:
            return None
        trouble = f"the Iceberg table {self.url}: {found['trouble']}" if found["trouble"] else ""
        trouble = trouble or self._elsewhere(found["location"].rstrip("/"))
        return Seen(
            found["version"],
            found["upto"],
            found["types"],
            tuple(found["strict"]),
            tuple(found["partitions"]),
            trouble,
        )

    def _elsewhere(self, location: str) -> str:
        """Return why a table at ``location`` is not in the place of the dataset; "" if it is.

        Its metadata have full paths. A folder may have several, and then the files go on to have those of the table.
        """
        if _spelled(location) == _spelled(self.location) or _same_folder(location, self.location):
            self._known_as = location
            return ""
        return (
            f"the Iceberg table {self.url} is at {location}, and the dataset at {self.location}: its metadata have "
            "full paths, so a dataset in an Iceberg table can be neither moved nor copied. Move it back to its place, "
            "or use a new path and a new table"
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
            {"path": f"{self._known_as}/{each.name}", "nbytes": each.nbytes, "rows": each.rows, "values": each.values}
            for each in files
        ]
        self._ask("add", files=described, first=first, upto=upto)

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return the files of the table as it was seen last: size in bytes and rows (None: unknown), by name."""
        found = self._ask("files")
        known = bool(found["rows"])
        return {self._name(path): (size, rows if known else None) for path, size, rows in found["files"]}

    def _name(self, path: str) -> str:
        """Return the name in the dataset of a file of the table, or its path if it is elsewhere."""
        places = (f"{place}/" for place in (self._known_as, self.location))
        return next((path.removeprefix(place) for place in places if path.startswith(place)), path)

    def _ask(self, do: str, **facts: Any) -> Any:
        if not self._hasty:
            self._earlier_until = self._until = time.monotonic() + 2 * ANSWER_S
        most_s = max(0.0, self._until - time.monotonic())
        try:
            with waits_for(f"the catalog of the table {self.url}", most_s):
                return self._client.ask({**self._request, "do": do, **facts}, self._until, self._earlier_until)
        except TableStoppedError as exc:
            raise exc.named(f"the Iceberg table {self.url}: {exc}") from exc


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


def _spelled(url: str) -> str:
    """Return a URL with the usual one of the schemes that programs have for a store."""
    scheme, mark, rest = url.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{mark}{rest}"


def _same_folder(one: str, other: str) -> bool:
    """Return True if two URLs are of one folder of this machine."""
    paths = [url.removeprefix("file:").removeprefix("//") for url in (one, other) if url.startswith(("file:", "/"))]
    try:
        return len(paths) == 2 and os.path.samefile(*paths)
    except OSError:
        return False


def _fields(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [field(column, sized=True) for column in columns]
