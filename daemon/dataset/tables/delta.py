"""Delta as a format of tables. The only module of this package that calls its library."""

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from fastwire.decode.evolution import Column

from ...runtime.outside import waits_for
from ..storage.base import Storage
from ..storage.bucket import REFUSED, StoreAwayError
from ..storage.words import said
from ..tableformat import OWNER, AddedFile, Seen, TableRacedError, TableStoppedError
from ..tableschema import field, plain_type
from .statistics import statistics_of

LOG = "_delta_log"

# An application's transaction may be forgotten by then, and its files would be added again.
_FORGETS = "delta.setTransactionRetentionDuration"
# Features under which files may be added as they are, if the library writes such tables at all.
_HARMLESS = {
    "appendOnly", "changeDataFeed", "clustering", "deletionVectors", "domainMetadata", "invariants", "timestampNtz",
    "v2Checkpoint", "vacuumProtocolCheck",
}  # fmt: skip
# Commits that are made durable at the first look: their writer may have died before its sync.
_LOOKED_BACK = 10
_PLAIN_WRITER, _LISTED_WRITER = 2, 7
_OF_FIELDS = ("delta.invariants", "delta.generationExpression", "delta.identity.start", "delta.columnMapping.id")
# The library tries a request for 180 s, and a look or a commit has several.
_ANSWER_S = 600.0
_DISK_FULL = {"os error 28": errno.ENOSPC, "os error 122": errno.EDQUOT}


class DeltaLog:
    """The Delta table in ``storage``, for the dataset whose id is ``owner``."""

    title = "Delta"

    def __init__(self, storage: Storage, owner: str) -> None:
        self.url = storage.root
        self._storage = storage
        self._settings = dict(storage.access)
        self._owner = owner
        self._table: DeltaTable | None = None
        self._synced = -1  # version of the table up to which its commits are durable

    def type_of(self, column: Column) -> object:
        """Return the type of ``column`` as the log of the table has it."""
        return plain_type(column)

    def begin(self, *, late: bool) -> None:
        """Do nothing: the table is in the place of the dataset."""

    def forget(self) -> None:
        """Read the whole table again at the next look: another one may be in its place."""
        self._table = None

    def look(self) -> Seen | None:
        """Return the table as it is now; None if there is none."""
        seen = self._look()
        if seen is not None and not self._storage.exists(_commit_name(seen.version)):
            self.forget()  # the library does not look whether what it knows is still there
            seen = self._look()
        return seen

    def _look(self) -> Seen | None:
        table = self._loaded()
        if table is None:
            return None
        with self._translated():
            metadata = table.metadata()
            fields = {each["name"]: each for each in json.loads(table.schema().to_json())["fields"]}
            return Seen(
                table.version(),
                table.transaction_version(self._owner) or 0,
                {name: _plain(each["type"]) for name, each in fields.items()},
                tuple(name for name, each in fields.items() if not each["nullable"]),
                tuple(metadata.partition_columns),
                self._trouble(table, fields),
            )

    def settle(self, version: int) -> None:
        """Make the commits of the table up to ``version`` durable: the library does not."""
        first = max(self._synced + 1, version + 1 - _LOOKED_BACK, 0)
        names = [name for name in map(_commit_name, range(first, version + 1)) if self._storage.exists(name)]
        if names:
            self._storage.sync_content(names)
            self._storage.sync(folders=[folder for folder in (LOG,) if self._storage.has_folder(folder)])
        self._synced = version

    def _loaded(self) -> DeltaTable | None:
        with self._translated():
            if self._table is not None:
                self._table.update_incremental()
            else:
                try:
                    self._table = DeltaTable(self.url, storage_options=self._settings or None)
                except TableNotFoundError:
                    pass
            return self._table

    def _trouble(self, table: DeltaTable, fields: Mapping[str, Mapping[str, Any]]) -> str:
        configuration = table.metadata().configuration
        if (owner := configuration.get(OWNER)) != self._owner:
            of = f"belongs to the dataset {owner}" if owner else "was not made by fastwire, or replaced"
            return f"the Delta table at {self.url} {of}: it is not that of this dataset, whose id is {self._owner}"
        if _FORGETS in configuration:
            return f"the Delta table at {self.url} has the property {_FORGETS}: unset it, or files could be added twice"
        protocol = table.protocol()
        features = set(protocol.writer_features or ()) | set(protocol.reader_features or ())
        unknown = sorted(features - _HARMLESS)
        if protocol.min_writer_version > _PLAIN_WRITER and protocol.min_writer_version != _LISTED_WRITER:
            unknown.append(f"writer version {protocol.min_writer_version}")
        unknown += sorted({key for each in fields.values() for key in each["metadata"] if key in _OF_FIELDS})
        if unknown:
            return f"the Delta table at {self.url} has features for which fastwire cannot write: {', '.join(unknown)}"
        return ""

    def create(self, columns: Sequence[Column], partitions: Sequence[str]) -> None:
        """Create the table with these columns. Raises TableRacedError if there is one now."""
        with self._translated():
            try:
                DeltaTable.create(
                    self.url,
                    Schema.from_json(json.dumps({"type": "struct", "fields": [field(column) for column in columns]})),
                    partition_by=list(partitions),
                    configuration={OWNER: self._owner},
                    raise_if_key_not_exists=False,
                    storage_options=self._settings or None,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except Exception as exc:
                if self._loaded() is None:
                    raise
                raise TableRacedError(str(exc)) from exc

    def add_columns(self, columns: Sequence[Column]) -> None:
        """Add columns to the table as it was seen last. Raises TableRacedError."""
        with self._committing() as table:
            table.alter.add_columns(
                [Field.from_json(json.dumps(field(column))) for column in columns],
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def add(self, files: Sequence[AddedFile], first: int, upto: int) -> None:
        """Add the files of log entries ``first`` to ``upto`` to the table as it was seen last. Raises TableRacedError.

        In the same commit the table notes ``upto``.
        """
        now_ms = int(self._storage.now() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(each.name, each.nbytes, each.values, now_ms, True, self._statistics(each)) for each in files
        ]
        with self._committing() as table:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=CommitProperties(
                    custom_metadata={OWNER: self._owner, "fastwire.entries": f"{first}-{upto}"},
                    max_commit_retries=0,
                    app_transactions=[Transaction(self._owner, upto)],
                ),
            )

    def _statistics(self, file: AddedFile) -> str:
        try:
            with self._storage.reader(file.name) as content:
                return statistics_of(content, file.rows)
        except FileNotFoundError as exc:  # others have published it, and rewritten the table
            raise TableRacedError(str(exc)) from exc

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return the files of the table as it was seen last: size in bytes and rows (None: unknown), by name."""
        table = self._table
        if table is None:
            return {}
        with self._translated():
            found = pa.table(table.get_add_actions())
            columns = [found[name].to_pylist() for name in ("path", "size_bytes", "num_records")]
            # In the log of the table a path is part of a URL.
            return {unquote(path): (nbytes, rows) for path, nbytes, rows in zip(*columns, strict=True)}

    @contextmanager
    def _committing(self) -> Iterator[DeltaTable]:
        """Yield the table as it was seen last; a failure is a race if the table has changed, and final otherwise."""
        table = self._table
        assert table is not None, "a table is looked at before it is changed"
        before = table.version()
        with self._translated():
            try:
                yield table
            except CommitFailedError as exc:
                now = self._loaded()
                if now is None or now.version() > before:
                    raise TableRacedError(str(exc)) from exc
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of the library as those of this class."""
        try:
            with waits_for(f"the Delta table at {self.url}", _ANSWER_S) if "://" in self.url else nullcontext():
                yield
        except (TableStoppedError, TableRacedError, StoreAwayError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as exc:  # the library panics in its own class
            if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
                raise
            text = str(exc)
            why = f"the Delta table at {self.url}: {said(text)}"
            for mark, number in _DISK_FULL.items():
                if mark in text:
                    raise OSError(number, why) from exc
            if "Error performing" in text and not REFUSED.search(text):
                raise StoreAwayError(why) from exc
            raise TableStoppedError(why) from exc


def _commit_name(version: int) -> str:
    """Return the name of the file with one version of the table, within the dataset."""
    return f"{LOG}/{version:020d}.json"


def _plain(type_: object) -> object:
    """Return a type without what says nothing about files: metadata, and whether nulls are allowed."""
    if not isinstance(type_, dict):
        return type_
    plain = {key: _plain(value) for key, value in type_.items()}
    if "fields" in plain:
        plain["fields"] = [
            {"name": each["name"], "type": _plain(each["type"]), "nullable": True, "metadata": {}}
            for each in type_["fields"]
        ]
    return plain | {key: True for key in ("containsNull", "valueContainsNull") if key in plain}
