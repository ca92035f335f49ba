"""dataset.json: the settings that are fixed when a dataset is created, and their comparison with a configuration."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fastwire.decode.evolution import Column, added_types, columns_from_json, columns_to_json, named_as
from fastwire.decode.program import SchemaError
from fastwire.systems import row_of

from ..runtime.errors import DatasetDamagedError, DatasetMismatchError
from .level import SPLITS, level_keys, time_level
from .tableformat import TITLES
from .tableschema import misfit, retyped

DESCRIPTION = "_fastwire/dataset.json"
FORMAT = 1

_WORDS = {
    "system": "the system",
    "extension": "the file format",
    "split": "split",
    "partition_by": "partition_by",
    "levels": "the partition columns",
    "columns": "the columns",
    "table": "the table format",
    "level_types": "the types of the partition columns",
}
# Settings of a catalog that are secret: dataset.json leaves them out.
_SECRET = ("token", "credential", "password", "secret_access_key", "session_token")
_OF_CREATION = ("id", "created")
_TYPED = ("types", "level_types")
_NO_TEXT = ("columns", "levels", "hosts", "table", "catalog", "target", *_TYPED)
_HOST = re.compile(r"\S+:[0-9]{1,5}")
_LEVEL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions:
    """The settings of a writer for its dataset.

    ``system``, ``columns``, ``split``, ``partition_by``, ``levels``, ``extension`` and ``table`` are fixed at creation
    and must not change. With a ``table`` ("delta", "iceberg") files are published in a table of that format, and
    ``level_types`` are the types of ``levels``. ``catalog`` has the settings of the catalog (secrets in clear text), if
    the format has one, and the name of the "table" in it, which must not change either. ``types`` are the columns of
    decoded values or a transform; columns of the records have a _ before their name if values are decoded. With
    ``types`` columns may be added or (without a table) become wider by log entries.
    ``partition_by`` is as in ``time_level``. ``levels`` are columns that
    become folder levels, below those of ``split`` and ``partition_by``; files do not contain them. The name ``cluster``
    at creation is kept for good: logs are named by it. ``hosts`` (``host:port``) are the addresses of the cluster: a
    dataset with other hosts belongs to another cluster, unless its cluster's name is ``cluster``. ``shared`` is true if
    the source delivers in any order (Shared, Key_Shared); it may change. With ``single_log`` the writer refuses a
    dataset with another topic of its ``system``: as for a Spark job, whose query would write those of another one.
    With ``inferred`` the columns of decoded values are those of the dataset, and ``types`` those of a new one.
    With ``widens`` a log entry may make long columns doubles, and numbers text, unless there is a table. With a
    ``target``, see ``target_text``, the rows are in that topic, and the dataset has the positions and the dead letters
    only.
    ``older_columns`` are the ``columns`` as versions wrote them that gave a job no ``types``: they may be among those.
    """

    system: str
    cluster: str
    columns: tuple[str, ...]
    split: str = "none"
    partition_by: str = "none"
    levels: tuple[str, ...] = ()
    extension: str = "parquet"
    types: tuple[Column, ...] = ()
    inferred: bool = False
    widens: bool = False
    shared: bool = False
    single_log: bool = False
    older_columns: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    table: str = ""
    level_types: tuple[Column, ...] = ()
    catalog: Mapping[str, str] = field(default_factory=dict)
    target: str = ""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split is {self.split!r}; it can be {', '.join(SPLITS)}")
        time_level(self.partition_by)
        if not self.extension or "/" in self.extension or self.extension.startswith("."):
            raise ValueError(f"{self.extension!r} cannot end a file's name")
        for level in self.levels:
            if not _LEVEL.fullmatch(level):
                raise ValueError(f"{level!r} cannot name a folder level: letters, digits and _ only, a letter first")

    @property
    def level_keys(self) -> tuple[str, ...]:
        """The names of all folder levels, outermost first."""
        return (*level_keys(self.split, self.partition_by), *self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The content of dataset.json."""

    id: str
    system: str
    cluster: str
    columns: tuple[str, ...]
    split: str
    partition_by: str
    extension: str
    created: str
    levels: tuple[str, ...] = ()
    types: tuple[Column, ...] = ()
    hosts: tuple[str, ...] = ()  # empty in datasets of versions that did not record them
    table: str = ""
    level_types: tuple[Column, ...] = ()
    catalog: Mapping[str, str] = field(default_factory=dict)  # at the creation, without secrets
    target: str = ""

    @classmethod
    def of(cls, options: DatasetOptions, *, id: str, created: str) -> "Description":
        """Return the description of a dataset that is created with ``options``."""
        settings: dict[str, Any] = {name: getattr(options, name) for name in cls.__slots__ if name not in _OF_CREATION}
        settings["catalog"] = {name: value for name, value in options.catalog.items() if name not in _SECRET}
        return cls(id=id, created=created, **settings)

    @property
    def options(self) -> DatasetOptions:
        """The settings of a writer that fits this dataset and lands nothing."""
        own = (*_OF_CREATION, "hosts")
        settings: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name not in own}
        return DatasetOptions(**settings)

    def encode(self) -> bytes:
        """Return the content of dataset.json."""
        value = {name: getattr(self, name) for name in self.__slots__}
        value |= {name: columns_to_json(value[name]) for name in _TYPED}
        for name in ("levels", "hosts", "table", "catalog", "target", *_TYPED):
            if not value[name]:
                del value[name]
        return orjson.dumps({"format": FORMAT, **value}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def check(self, options: DatasetOptions, root: str) -> None:
        """Raise DatasetMismatchError, with all differences, unless ``options`` are those of the creation."""
        differences = []
        for name, word in _WORDS.items():
            held, wanted = getattr(self, name), getattr(options, name)
            if name == "columns" and options.inferred and self.types:
                continue  # they are taken as they are
            if name == "columns" and options.types and (self.types or {*held} <= {*options.older_columns}):
                continue  # they are compared by type, here or by the writer
            if held != wanted:
                differences.append(f"{word} of the dataset: {_show(held)}; configured: {_show(wanted)}")
        for name, default in (("table", ""), ("branch", "main")):
            held, wanted = (each.catalog.get(name, default) for each in (self, options))
            if held != wanted:
                differences.append(f"the {name} of the dataset: {_show(held)}; configured: {_show(wanted)}")
        if _other_target(self.target, options.target):
            differences.append(f"the topic of the dataset: {_show(self.target)}; configured: {_show(options.target)}")
        if self.types and options.types and not options.inferred:
            try:
                added_types(self.types, options.types)
            except SchemaError as exc:
                differences.append(f"decoded columns do not fit those of the dataset: {exc}")
            if self.table and (why := misfit(self.types, named_as(options.types, self.types))):
                differences.append(why)
            if options.single_log and (why := retyped(self.types, options.types)):
                differences.append(f"{why} in the files of a job")
            of_records = _of_records(self.columns, self.types)
            differences += [
                f"the column {column.name} of the dataset: as in the records; configured: decoded"
                for column in options.types
                if column.name in of_records
            ]
        types = (*options.types, *(self.types if options.inferred else ()))
        if self.types and types and self.prefix != (other := record_prefix(options.system, options.columns, types)):
            words = [f'with "{each}" before the columns of the records' for each in (self.prefix, other)]
            differences.append(f"the names of the dataset: {words[0]}; configured: {words[1]}")
        if differences:
            raise DatasetMismatchError(
                f"the dataset at {root} was created with other settings, which cannot change. "
                + ". ".join(differences)
                + ". Use a new path"
            )

    @property
    def prefix(self) -> str:
        """The text before the names of the columns of the records."""
        return record_prefix(self.system, self.columns, self.types)

    @property
    def known_hosts(self) -> tuple[str, ...]:
        """The hosts of the cluster; older datasets have them as the name of a cluster without a configured name."""
        named = tuple(self.cluster.split(","))
        return self.hosts or (named if all(_HOST.fullmatch(host) for host in named) else ())


def read_description(data: bytes, root: str) -> Description:
    """Decode dataset.json. Raises DatasetDamagedError, or DatasetMismatchError for one of a later format."""
    try:
        value: Any = orjson.loads(data)
        if value["format"] != FORMAT:
            raise DatasetMismatchError(
                f"the dataset at {root} has format {value['format']!r}; this version of fastwire knows {FORMAT}"
            )
        names = [name for name in Description.__slots__ if name not in _NO_TEXT]
        texts = {name: value[name] for name in names}
        texts |= {name: value.get(name, "") for name in ("table", "target")}
        columns, levels, hosts = value["columns"], value.get("levels", []), value.get("hosts", [])
        catalog = dict(value.get("catalog", {}))
        typed = {name: columns_from_json(value.get(name, [])) for name in _TYPED}
        if not all(isinstance(text, str) for text in (*texts.values(), *columns, *levels, *hosts, *catalog.values())):
            raise TypeError("all values but the format are text")
        time_level(texts["partition_by"])
        if texts["split"] not in SPLITS:
            raise ValueError("unknown levels")
        if texts["table"] not in ("", *TITLES):
            raise ValueError(f"unknown table format {texts['table']!r}")
        return Description(
            columns=tuple(columns),
            levels=tuple(levels),
            hosts=tuple(hosts),
            types=typed["types"],
            level_types=typed["level_types"],
            catalog=catalog,
            **texts,
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise DatasetDamagedError(f"{root}/{DESCRIPTION} is damaged: {exc}. Restore it from a backup") from exc


def target_text(system: str, topic: str, hosts: str) -> str:
    """Return the ``target`` for a topic (its full name) at ``hosts`` (``host:port``, separated by commas)."""
    return f"{system} topic {topic} at {hosts}"


def _other_target(held: str, wanted: str) -> bool:
    """Return True if the topics differ, or none of their hosts is the same: then it is that of another cluster."""
    (topic, _, hosts), (other, _, others) = held.rpartition(" at "), wanted.rpartition(" at ")
    return topic != other or (bool(hosts) and not set(hosts.split(",")) & set(others.split(",")))


def record_prefix(system: str, columns: Collection[str], types: Collection[Column]) -> str:
    """Return the text before the names of the columns of the records among ``columns``: "_" if values are decoded."""
    of_records = _of_records(columns, types)  # none in a job on Spark, which has no system
    return "_" if types and (not of_records or of_records.isdisjoint(row_of(system).names)) else ""


def _of_records(columns: Collection[str], types: Collection[Column]) -> set[str]:
    return {*columns} - {column.name for column in types}


def _show(value: str | tuple[object, ...]) -> str:
    return (value if isinstance(value, str) else ", ".join(map(str, value))) or "none"
