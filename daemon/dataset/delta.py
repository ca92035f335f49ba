"""The operations of a Delta table that a dataset needs. The only module of this package that calls the library.

Nothing is ever repeated in here: after any error but TableStoppedError a commit may have taken effect, so the caller
looks at the table and decides again. The library would repeat a commit on a table that already has it.
"""

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from .bucket import REFUSED, StoreAwayError

__all__ = ["AddedFile", "DeltaLog", "Seen", "TableRacedError", "TableStoppedError", "commit_name"]

LOG = "_delta_log"
OWNER = "fastwire.dataset"
"""Property of a table: the id of the dataset that is published in it."""

# An application's transaction may be forgotten by then, and its files would be added again.
_FORGETS = "delta.setTransactionRetentionDuration"
# Features under which files may be added as they are, if the library writes such tables at all.
_HARMLESS = {
    "appendOnly", "changeDataFeed", "clustering", "deletionVectors", "domainMetadata", "invariants", "timestampNtz",
    "v2Checkpoint", "vacuumProtocolCheck",
}  # fmt: skip
_PLAIN_WRITER, _LISTED_WRITER = 2, 7
_OF_FIELDS = ("delta.invariants", "delta.generationExpression", "delta.identity.start", "delta.columnMapping.id")
_DISK_FULL = {"os error 28": errno.ENOSPC, "os error 122": errno.EDQUOT}


class TableStoppedError(Exception):
    """The table cannot take files as it is; the text says why, for the user. The commit has had no effect."""


class TableRacedError(Exception):
    """Another process has committed to the table since it was looked at."""


class AddedFile(NamedTuple):
    """A file for the table: its name in the dataset, and the values of the partition columns."""

    name: str
    nbytes: int
    values: Mapping[str, str | None]
    modified_ms: int
    """Milliseconds since 1970."""
    statistics: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A table at one version."""

    version: int
    upto: int
    """The log entry up to which the files of the dataset are in it; 0: none."""
    fields: Mapping[str, Mapping[str, Any]]
    """Its columns, as in its log."""
    partitions: tuple[str, ...]
    trouble: str
    """The reason why no files can be added; "" without one."""


class DeltaLog:
    """The table at ``url``, with the ``settings`` of its store, for the dataset whose id is ``owner``.

    Every method may raise TableStoppedError, and OSError where the same may succeed later.
    """

    def __init__(self, url: str, settings: Mapping[str, str], owner: str) -> None:
        self.url = url
        self._settings = dict(settings)
        self._owner = owner
        self._table: DeltaTable | None = None

    def forget(self) -> None:
        """Read the whole table again at the next look: another one may be in its place."""
        self._table = None

    def look(self) -> Seen | None:
        """Return the table as it is now; None if there is none."""
        table = self._loaded()
        if table is None:
            return None
        with self._translated():
            metadata = table.metadata()
            fields = {each["name"]: each for each in json.loads(table.schema().to_json())["fields"]}
            return Seen(
                table.version(),
                table.transaction_version(self._owner) or 0,
                fields,
                tuple(metadata.partition_columns),
                self._trouble(table, fields),
            )

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

    def create(self, fields: Sequence[Mapping[str, Any]], partitions: Sequence[str]) -> None:
        """Create the table with these columns. Raises TableRacedError if there is one now."""
        with self._translated():
            try:
                DeltaTable.create(
                    self.url,
                    _schema(fields),
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

    def add_columns(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Add columns to the table as it was seen last. Raises TableRacedError."""
        with self._committing() as table:
            table.alter.add_columns(
                [Field.from_json(json.dumps(each)) for each in fields],
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def add(self, files: Sequence[AddedFile], first: int, upto: int) -> None:
        """Add the files of log entries ``first`` to ``upto`` to the table as it was seen last. Raises TableRacedError.

        In the same commit the table notes ``upto``.
        """
        actions: list[AddAction | RemoveAction] = [
            AddAction(each.name, each.nbytes, each.values, each.modified_ms, True, each.statistics) for each in files
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

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return the files of the table as it was seen last: size in bytes and rows (None: unknown), by name."""
        table = self._table
        if table is None:
            return {}
        with self._translated():
            found = pa.table(table.get_add_actions())
            columns = [found[name].to_pylist() for name in ("path", "size_bytes", "num_records")]
            return {name: (nbytes, rows) for name, nbytes, rows in zip(*columns, strict=True)}

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
            yield
        except (TableStoppedError, TableRacedError, StoreAwayError, GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as exc:  # the library panics in its own class
            if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
                raise
            text = str(exc)
            said = f"the Delta table at {self.url}: {text.partition(chr(10))[0].strip()}"
            for mark, number in _DISK_FULL.items():
                if mark in text:
                    raise OSError(number, said) from exc
            if "Error performing" in text and not REFUSED.search(text):
                raise StoreAwayError(said) from exc
            raise TableStoppedError(said) from exc


def commit_name(version: int) -> str:
    """Return the name of the file with one version of the table, within the dataset."""
    return f"{LOG}/{version:020d}.json"


def _schema(fields: Sequence[Mapping[str, Any]]) -> Schema:
    return Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))
