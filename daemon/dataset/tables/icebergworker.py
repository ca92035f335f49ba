"""The process that commits to Iceberg tables. It has all calls of the library of the format, but for those of files.

It answers requests of ``icebergprocess.py``, side by side, until stdin ends: a line of stdin is a number and a JSON
object, a line of stdout the number and the answer. The library takes seconds and 100 MiB to import, so the daemon does
not load it.
"""

import contextlib
import json
import os
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TextIO
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import partition_to_py
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from ..tableformat import OWNER
from .icebergfiles import TableFileIO, file_properties
from .statistics import beyond_calendar

UPTO = "fastwire.upto"
"""Property of a table: the log entry up to which it has the files of the dataset, written with the files."""

_FORMAT = 2
_END_S = 4.0
_PRIMITIVES: Mapping[str, PrimitiveType] = {
    "boolean": BooleanType(), "integer": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "string": StringType(), "binary": BinaryType(), "date": DateType(),
    "timestamp": TimestamptzType(), "timestamp_ntz": TimestampType(),
}  # fmt: skip
_NAMES: Mapping[type[IcebergType], str] = {type(each): name for name, each in _PRIMITIVES.items()}
# Types about whose order all readers agree, and whose statistics our files have.
_ORDERED = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)
_UNKNOWN = MetricsMode(MetricModeTypes.NONE)
# Tables that are remembered as they were seen; one that was forgotten has to be looked at again.
_MOST_SEEN = 64
# Requests that are answered side by side; each that hangs holds a thread.
_MOST_ANSWERED = 64
# Properties of a table that name classes of Python.
_CODE = (PY_IO_IMPL, TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL)
# Names of the settings of a catalog in the library.
_CATALOG = {
    "type": "type", "uri": "uri", "warehouse": "warehouse", "token": "token", "credential": "credential",
    "scope": "scope", "oauth2_server_uri": "oauth2-server-uri",
}  # fmt: skip
_IN_GLUE = {
    "region": "glue.region", "catalog_id": "glue.id", "access_key_id": "glue.access-key-id",
    "secret_access_key": "glue.secret-access-key", "session_token": "glue.session-token", "uri": "glue.endpoint",
}  # fmt: skip
_SIGNED = {
    "sigv4": "rest.signing-name", "region": "rest.signing-region", "access_key_id": "client.access-key-id",
    "secret_access_key": "client.secret-access-key", "session_token": "client.session-token",
}  # fmt: skip


NO_CATALOG = (
    "what answers is not a catalog, because it is no JSON: check catalog.uri, and for a proxy or a login page before it"
)
_NO_JSON = "type=json_invalid"


class _Worker:
    def __init__(self) -> None:
        self._catalogs: dict[str, Catalog] = {}
        self._guard = threading.Lock()
        self._making_namespace = threading.Lock()
        self._seen: dict[str, Table] = {}

    def reply(self, line: str) -> dict[str, Any]:
        """Return the reply to a request: ``answer``, or the error as ``raced`` or ``stopped``."""
        try:
            return {"answer": self._answer(json.loads(line))}
        except (CommitFailedException, TableAlreadyExistsError) as exc:
            return {"raced": str(exc)}
        except Exception as exc:
            why = str(exc).strip()
            # The library has the answer read by its models, which tell neither the URL nor that it is a page.
            return {"stopped": NO_CATALOG if _NO_JSON in why else f"{type(exc).__name__}: {why.partition(chr(10))[0]}"}

    def _answer(self, request: Mapping[str, Any]) -> Any:
        """Carry out one request; ``table`` of it are the settings, ``client`` names who asks."""
        catalog = self._catalog(request["table"])
        name, owner, client = request["table"]["table"], request["owner"], request["client"]
        do = request["do"]
        if do == "look":
            return self._look(catalog, name, owner, client)
        if do == "create":
            return self._create(catalog, name, owner, request)
        table = self._seen.get(client)
        if table is None:
            raise CommitFailedException("the table has not been looked at by this process")
        if do == "add columns":
            return _add_columns(table, request["fields"])
        branch = request["table"].get("branch", MAIN_BRANCH)
        if do == "add":
            _make_branch(table, branch)
            return _add(table, branch, request["files"], owner, request["first"], request["upto"])
        return _files(table, branch)

    def _catalog(self, settings: Mapping[str, Any]) -> Catalog:
        key = json.dumps(settings, sort_keys=True)
        if key not in self._catalogs:
            names = _CATALOG | (_IN_GLUE if settings["type"] == "glue" else _SIGNED)
            known = {theirs: str(settings[name]) for name, theirs in names.items() if name in settings}
            if "password" in settings:
                user, at, rest = known["uri"].partition("@")
                known["uri"] = f"{user}:{quote(settings['password'], safe='')}{at}{rest}"
            if "sigv4" in settings:
                known |= {"rest.sigv4-enabled": "true", "rest.sigv4.max-retries": "0"}
            known |= file_properties(settings["root"], settings["location"], settings["store"])
            self._catalogs[key] = _guarded(_load_catalog(settings["name"], known), known)
        return self._catalogs[key]

    def _look(self, catalog: Catalog, name: str, owner: str, client: str) -> dict[str, Any] | None:
        try:
            table = catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as exc:
            why = str(exc).partition("Detail:")[0].strip()
            raise ValueError(
                "the metadata of the table are not where the catalog has them. They have full paths, so a dataset in "
                f"an Iceberg table can be neither moved nor copied: if it was moved, move it back ({why})"
            ) from exc
        with self._guard:
            self._seen.pop(client, None)
            self._seen[client] = table
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]
        trouble = _trouble(table, owner)
        fields = table.schema().fields
        partitions = []
        for each in table.spec().fields:
            source = table.schema().find_column_name(each.source_id)
            partitions.append(
                source if isinstance(each.transform, IdentityTransform) else f"{each.transform}({source})"
            )
        return {
            "location": table.location(),
            "version": table.metadata.next_sequence_number() - 1,
            "upto": _upto(table, owner),
            "types": {field.name: _plain(field.field_type) for field in fields},
            "strict": [field.name for field in fields if field.required],
            "partitions": partitions,
            "trouble": trouble,
        }

    def _create(self, catalog: Catalog, name: str, owner: str, request: Mapping[str, Any]) -> None:
        schema = assign_fresh_schema_ids(Schema(*_nested(request["fields"])))
        by = [
            PartitionField(schema.find_field(each).field_id, PARTITION_FIELD_ID_START + at, IdentityTransform(), each)
            for at, each in enumerate(request["partitions"])
        ]
        make = partial(
            catalog.create_table,
            name,
            schema,
            location=request["table"]["location"],
            partition_spec=PartitionSpec(*by),
            properties={
                OWNER: owner,
                UPTO: "0",
                # The files have no field ids.
                TableProperties.DEFAULT_NAME_MAPPING: schema.name_mapping.model_dump_json(),
                TableProperties.FORMAT_VERSION: str(_FORMAT),
                # Each commit writes all metadata anew, and would leave its file.
                TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
            },
        )
        try:
            make()
        except NoSuchNamespaceError:
            with self._making_namespace:  # catalogs fail where two requests make the same
                catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            make()


def _load_catalog(name: str, known: Mapping[str, str]) -> Catalog:
    """Load a catalog by its settings. One in a database makes its two tables, unless another makes them meanwhile."""
    for _ in range(2):
        try:
            return load_catalog(name, **known)
        except Exception as exc:
            if known["type"] != "sql" or "already exists" not in str(exc):
                raise
    return load_catalog(name, **known)


def _guarded(catalog: Catalog, ours: Mapping[str, str]) -> Catalog:
    """Return ``catalog``, whose tables have their files by its own settings, of which ``ours`` go before all others.

    The library lets properties of a table, which each of its writers can set, and settings that a REST catalog sends,
    replace endpoint, credentials and even the class that reads files.
    """

    def file_io(properties: Mapping[str, str] | None = None, location: str | None = None) -> FileIO:
        return TableFileIO({**catalog.properties, **ours})

    catalog._load_file_io = file_io  # type: ignore[method-assign]
    return catalog


def _trouble(table: Table, owner: str) -> str:
    """Return the reason why no files can be added to the table."""
    properties = table.properties
    if (of := properties.get(OWNER)) != owner:
        said = f"belongs to the dataset {of}" if of else "was not made by fastwire, or replaced"
        return f"it {said}: it is not that of this dataset, whose id is {owner}"
    if table.metadata.format_version != _FORMAT:
        return f"it has version {table.metadata.format_version} of the format, and fastwire writes {_FORMAT}"
    for name in _CODE:
        if name in properties:
            return f"its property {name} names code that this process would load: remove it"
    if TableProperties.DEFAULT_NAME_MAPPING not in properties:
        return f"it lacks the property {TableProperties.DEFAULT_NAME_MAPPING}, without which the files have no columns"
    if not properties.get(UPTO, "").isdecimal():
        return f"its property {UPTO} is gone or no number, so it is unknown which files it has"
    return ""


def _upto(table: Table, owner: str) -> int:
    text = table.properties.get(UPTO, "")
    return int(text) if text.isdecimal() and table.properties.get(OWNER) == owner else 0


def _add_columns(table: Table, fields: Sequence[Mapping[str, Any]]) -> None:
    transaction = table.transaction()
    with transaction.update_schema() as update:
        update.union_by_name(Schema(*_nested(fields)))
    _commit(table, transaction)


def _make_branch(table: Table, branch: str) -> None:
    """Make a branch that is missing from what main has now. Then the table has changed, and is looked at again.

    Main gets an empty snapshot where it has none: the library writes to no other branch before.
    """
    main = table.current_snapshot()
    if branch == MAIN_BRANCH or branch in table.refs():
        return
    transaction = table.transaction()
    if main is None:
        with transaction.update_snapshot().fast_append():
            pass
    else:
        with ManageSnapshots(transaction) as manage:
            manage.create_branch(main.snapshot_id, branch)
    _commit(table, transaction)
    raise CommitFailedException(f"the branch {branch} has been prepared")


def _add(table: Table, branch: str, files: Sequence[Mapping[str, Any]], owner: str, first: int, upto: int) -> None:
    transaction = table.transaction()
    summary = {OWNER: owner, "fastwire.entries": f"{first}-{upto}"}
    with transaction.update_snapshot(snapshot_properties=summary, branch=branch).merge_append() as append:
        for file in files:
            append.append_data_file(_data_file(table, file))
    transaction.set_properties({UPTO: str(upto)})
    try:
        _commit(table, transaction)
    except CommitFailedException:
        with contextlib.suppress(Exception):
            if table.catalog.load_table(table.name()).metadata.snapshot_by_id(append.snapshot_id) is None:
                append._clean_all_uncommitted()
        raise


def _commit(table: Table, transaction: Any) -> None:
    """Commit once, to the table as it was seen: the library's own way repeats a commit on another table."""
    unchanged = AssertTableUUID(uuid=table.metadata.table_uuid)
    table._do_commit(updates=transaction._updates, requirements=(*transaction._requirements, unchanged))


def _data_file(table: Table, file: Mapping[str, Any]) -> DataFile:
    schema, spec = table.schema(), table.spec()
    values = []
    for field in spec.fields:
        source = schema.find_field(field.source_id)
        assert isinstance(source.field_type, PrimitiveType)
        text = file["values"][source.name]
        values.append(None if text is None else _partition_value(source.field_type, text))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=file["nbytes"],
        sort_order_id=None,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **_statistics(table, file),
    )


def _partition_value(type_: PrimitiveType, text: str) -> Any:
    if isinstance(type_, StringType):
        return text  # the library takes one text for null
    if isinstance(type_, DateType):
        from pyiceberg.utils.datetime import date_str_to_days

        return date_str_to_days(text)
    return partition_to_py(type_, text)


def _statistics(table: Table, file: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows, counts and bounds of a file; a file without a readable footer has its rows only."""
    schema = table.schema()
    plan = {
        number: each if isinstance(each.iceberg_type, _ORDERED) else replace(each, mode=_UNKNOWN)
        for number, each in compute_statistics_plan(schema, table.properties).items()
    }
    try:
        with table.io.new_input(file["path"]).open() as stream:
            footer = pq.read_metadata(stream)
        numbers = parquet_path_to_id_mapping(schema)
        for path in beyond_calendar(footer):  # the library raises OverflowError for such statistics
            plan[numbers[path]] = replace(plan[numbers[path]], mode=_UNKNOWN)
        found = data_file_statistics_from_parquet_metadata(footer, plan, numbers)
    except FileNotFoundError as exc:  # others have published it, and rewritten the table
        raise CommitFailedException(f"{file['path']} is gone") from exc
    except (ValueError, KeyError, OSError, pa.ArrowException):
        return {"record_count": file["rows"]}
    return dict(found.to_serialized_dict())


def _files(table: Table, branch: str) -> dict[str, Any]:
    """Return path, bytes and rows of each data file; ``rows`` is false if rows are deleted by other files.

    A branch that is missing has what main has: it will be made from that.
    """
    snapshot = table.snapshot_by_name(branch) or table.current_snapshot()
    found, whole = [], True
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            if file.content == DataFileContent.DATA:
                found.append((file.file_path, file.file_size_in_bytes, file.record_count))
            else:
                whole = False
    return {"files": found, "rows": whole}


# --- types


def _nested(fields: Sequence[Mapping[str, Any]]) -> list[NestedField]:
    """Return columns of the library; all take nulls. The numbers are those of any table, which gives its own."""
    numbers = iter(range(1, 1 << 30))
    return [NestedField(next(numbers), each["name"], _type(each["type"], numbers), required=False) for each in fields]


def _type(plain: Any, numbers: Any) -> IcebergType:
    if isinstance(plain, str):
        if plain in _PRIMITIVES:
            return _PRIMITIVES[plain]
        kind, _, rest = plain.rstrip(")]").replace("[", "(").partition("(")
        if kind == "fixed":
            return FixedType(int(rest))
        precision, scale = rest.split(",")
        return DecimalType(int(precision), int(scale))
    if plain["type"] == "struct":
        return StructType(
            *(
                NestedField(next(numbers), each["name"], _type(each["type"], numbers), required=False)
                for each in plain["fields"]
            )
        )
    if plain["type"] == "array":
        return ListType(next(numbers), _type(plain["elementType"], numbers), element_required=False)
    key, value = next(numbers), next(numbers)
    return MapType(
        key, _type(plain["keyType"], numbers), value, _type(plain["valueType"], numbers), value_required=False
    )


def _plain(type_: IcebergType) -> Any:
    """Return a type as ``tableschema`` has it; the library's text for one that no column of a dataset has."""
    if isinstance(type_, StructType):
        fields = [
            {"name": each.name, "type": _plain(each.field_type), "nullable": True, "metadata": {}}
            for each in type_.fields
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(type_, ListType):
        return {"type": "array", "elementType": _plain(type_.element_type), "containsNull": True}
    if isinstance(type_, MapType):
        return {
            "type": "map",
            "keyType": _plain(type_.key_type),
            "valueType": _plain(type_.value_type),
            "valueContainsNull": True,
        }
    if isinstance(type_, DecimalType):
        return f"decimal({type_.precision},{type_.scale})"
    return _NAMES.get(type(type_), str(type_))


def main() -> None:
    """Answer requests until stdin ends, and soon after it those under way, also if a catalog does not answer."""
    answers: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    warnings.simplefilter("ignore")
    worker, guard = _Worker(), threading.Lock()

    def answer(line: str) -> None:
        number, _, request = line.partition(" ")
        try:
            reply = json.dumps(worker.reply(request))
            with guard:
                print(number, reply, file=answers, flush=True)
        except BaseException:  # of the pipe, whose other end is gone; or who has asked would wait for nothing
            os._exit(1)

    threads = ThreadPoolExecutor(_MOST_ANSWERED)
    for line in sys.stdin:
        threads.submit(answer, line)
    threading.Timer(_END_S, os._exit, (1,)).start()
    threads.shutdown()
    os._exit(0)
