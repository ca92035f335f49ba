"""Reads a file into a validated Config, and reports all mistakes at once, each with its key and line."""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fastwire.grammar import Grammar
from fastwire.systems import SYSTEMS, grammar_of, grammars, row_of

from .brokers.connection import Connection, connection_model, keys_of_others, model_for
from .brokers.source import SourceConfig, source_model
from .brokers.sparksource import SparkDataset, brokers_model, spark_source_model
from .decode import check_decode, check_transform
from .formerwords import renew
from .model import Config, DaemonConfig, Landing
from .neighbours import conflicts
from .problem import ConfigError, Problem
from .sinks.catalog import check_catalog
from .sinks.database import DATABASE_KEYS, check_database
from .sinks.partitioning import check_partitioning
from .sinks.store import check_store
from .sinks.topicplaces import check_topic_places
from .sinks.topicsink import DATASET_KEYS, check_target, check_topic_sink, topic_names
from .spark import SPARK_REQUIRED, check_spark
from .table import Table, table_in
from .values.fields import (
    DATABASE_TYPES,
    DATASET_TYPES,
    PLAIN_TYPES,
    check_compression,
    default_compression,
    group_named,
    parse_start,
    sink_kind,
    start_choices,
)
from .values.machine import cores
from .values.text import (
    Interpolation,
    KeyPath,
    either,
    every,
    format_size,
    interpolate,
    key_lines,
    kind,
    nearest,
    parse_size,
)

Change = Callable[[dict[str, Any]], None]
"""Changes the tables of a file before they are validated."""


C = TypeVar("C", bound=Connection)


def load_config(
    path: str | Path, environ: Mapping[str, str] = os.environ, change: Change = lambda tables: None
) -> Config:
    """Read and validate a file, as ``change`` leaves it. Raises ConfigError, also when the file cannot be read."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError([Problem(str(path), "", f"cannot read the configuration: {exc.strerror}")]) from None
    except UnicodeDecodeError as exc:
        raise ConfigError([Problem(str(path), "", f"is not UTF-8 text (byte {exc.start})")]) from None
    config = parse_config(text, environ, name=str(path), change=change)
    config._path = path
    config._text = text
    return config


def parse_config(
    text: str,
    environ: Mapping[str, str] = os.environ,
    name: str = "configuration",
    change: Change = lambda tables: None,
) -> Config:
    """Validate a TOML text and return it with all defaults. ``name`` stands for the file in messages.

    Raises ConfigError.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([_syntax_problem(str(exc), text, name)]) from None
    change(raw)
    reading = _Parser(name, key_lines(text), interpolate(raw, environ))
    return reading.config()


def parse_connection(keys: Mapping[str, Any]) -> Connection:
    """Validate the keys of a connection that come from the options of a command or of a Spark query.

    Raises ConfigError, whose problems have the key but no line.
    """
    return _keyed(lambda: _Parser("", {}, Interpolation(dict(keys))).connection())


def _keyed(parse: Callable[[], C]) -> C:
    """Return what ``parse`` does; its problems have no line."""
    try:
        return parse()
    except ConfigError as exc:
        found = [Problem("", key, message) for _, key, message in exc.problems]
    raise ConfigError(found)


def parse_source(keys: Mapping[str, Any]) -> SourceConfig:
    """Validate the keys of a source that a program gives. Raises ConfigError as ``parse_connection``."""
    return _keyed(lambda: _Parser("", {}, Interpolation(dict(keys))).source())


# -- from a tree to models -------------------------------------------------------------------------------------------

M = TypeVar("M", bound=BaseModel)
Models = Callable[[str], type[Connection]]

_URLS = " or ".join(f'"{grammar.url_example}"' for grammar in grammars())
_REQUIRED: Mapping[str, str] = {
    "pipelines": "is required: at least one [pipelines.NAME.source] with its [pipelines.NAME.sink]",
    "source": "is required: a table [pipelines.NAME.source]",
    "sink": "is required: a table [pipelines.NAME.sink]",
    "subscription": "is required: the name under which the brokers keep the progress",
    "url": f"is required: the broker, such as {_URLS}",
    "type": f"is required: {', '.join((*DATASET_TYPES, *DATABASE_TYPES, *PLAIN_TYPES))}, the name of a system or of a "
    "plug-in",
}
_ALL_COLUMNS = {name for system in SYSTEMS for name in row_of(system).names}
_ONLY_TOPICS = {
    "on_error": ": use source.on_corrupt or decode.on_error for files",
    "delivery": ": files are always exactly once",
    "positions": "",
    "dead_letters": "",
}
_COMMON_KEYS = ("type", "columns", "roll", "writers")

# The least memory, in bytes. Of a connection: its receive buffer, open chunk and the output of one read. Of a writer:
# two chunks on their way to it, and its smallest row group.
CONNECTION_FLOOR = 16 * 2**20
WRITER_FLOOR = 16 * 2**20
SMALL_MEMORY = 256 * 2**20


class _Parser:
    """Reads one document into a Config and collects its problems."""

    def __init__(self, name: str, lines: Mapping[KeyPath, int], document: Interpolation) -> None:
        self._name = name
        self._lines = lines
        self._tree = document.tree
        self._substituted = document.substituted
        self._found: list[tuple[int, Problem]] = []
        self._told: set[KeyPath] = set()
        self._written: dict[KeyPath, KeyPath] = {}  # by key: its path in the file, or in the words of its system
        self._root: type[Table] = Config
        for path, message in document.problems:
            self._problem(path, message)

    def config(self) -> Config:
        former = [self._place(path, message) for path, message in renew(self._tree, self._moved, self._problem)]
        for name, source, sink in self._pipelines():
            self._check_name("pipelines", name)
            self._check_source(("pipelines", name, "source"), source, sink, source_model)
            self._check_sink(("pipelines", name, "sink"), sink)
            pipeline = self._tree["pipelines"][name] if source or sink else {}
            decode, transform = pipeline.get("decode"), pipeline.get("transform")
            grammar = grammar_of(source.get("url", ""))
            system = "" if grammar is None else grammar.name
            if isinstance(decode, dict):
                place = ("pipelines", name, "decode")
                check_decode(place, decode, sink, system, self._problem, source.get("start"))
                if transform is not None:
                    self._problem(("pipelines", name, "transform"), "is a key of the table decode, where there is one")
            elif transform is not None:
                check_transform(("pipelines", name), transform, sink, system, self._problem)
            else:
                check_partitioning(
                    ("pipelines", name, "sink", "partition_by"), sink.get("partition_by"), None, self._problem
                )
        self._check_shared_paths()
        jobs = self._tree.get("spark")
        if isinstance(jobs, dict):
            check_spark(jobs, self._problem)
            for name, job in jobs.items():
                self._check_name("spark", name)
                brokers = job.get("source") if isinstance(job, dict) else None
                if isinstance(brokers, dict) and spark_source_model(brokers) is not SparkDataset:
                    self._check_source(("spark", name, "source"), brokers, brokers, brokers_model)
        # Building the validators of the tables of jobs takes as long as building all others.
        found = self._validated(Config if "spark" in self._tree else Landing)
        config = None
        if found is not None:
            config = (
                found if isinstance(found, Config) else Config.model_construct(found.model_fields_set, **dict(found))
            )
            self._check_memory(config)
            for path, message in conflicts(config.pipelines, config.spark):
                self._problem(path, message)
        self._refuse()
        assert config is not None  # without a problem there is a model
        config._former = tuple(former)
        return config

    def connection(self) -> Connection:
        """Return the connection that is the whole tree."""
        model = model_for(self._tree, connection_model)
        self._root = model
        self._check_connection((), self._tree, connection_model)
        found = self._validated(model)
        self._refuse()
        assert found is not None
        return found

    def source(self) -> SourceConfig:
        """Return the source that is the whole tree."""
        model = self._root = model_for(self._tree, source_model)
        self._check_source((), self._tree, self._tree, source_model)
        found = self._validated(model)
        self._refuse()
        assert found is not None
        return found

    def _refuse(self) -> None:
        if self._found:
            raise ConfigError([problem for _, problem in sorted(self._found, key=lambda found: found[0])])

    # Rules between keys are checked on the tree and not on the models, so that one mistake does not hide another.

    def _pipelines(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        tables = self._tree.get("pipelines")
        for name, pipeline in tables.items() if isinstance(tables, dict) else ():
            source = pipeline.get("source") if isinstance(pipeline, dict) else None
            sink = pipeline.get("sink") if isinstance(pipeline, dict) else None
            yield name, source if isinstance(source, dict) else {}, sink if isinstance(sink, dict) else {}
        if not tables and tables in (None, {}) and not self._tree.get("spark"):
            self._problem(("pipelines",), _REQUIRED["pipelines"])

    def _check_name(self, what: str, name: str) -> None:
        if not name or not all(letter.isascii() and (letter.isalnum() or letter in "_.-") for letter in name):
            self._problem((what, name), "a name consists of letters, digits and _ . - only")

    def _rename_aliases(self, path: KeyPath, source: dict[str, Any], model: type[Table]) -> None:
        for alias, key in model.aliases.items():
            if alias not in source:
                continue
            if key in source:
                self._problem((*path, alias), f"is an alias of {key}, which is given too")
            source.setdefault(key, source.pop(alias))
            self._moved((*path, alias), (*path, key))

    def _check_source(
        self,
        path: KeyPath,
        source: dict[str, Any],
        chooser: Mapping[str, Any],
        models: Models,
    ) -> None:
        """Check the rules between the keys of a source. ``chooser`` is the table that may hold ``columns``."""
        self._rename_aliases(path, source, model_for(source, models))
        grammar = self._check_connection(path, source, models)
        if grammar is not None and grammar.group_word and "subscription" not in source:
            self._written[*path, "subscription"] = (*path, grammar.group_word)
        self._check_topics(path, source, grammar)
        if grammar is not None:
            table = "source" if chooser is source else "sink"
            self._check_columns((*path[:-1], table, "columns"), grammar, chooser)

    def _check_connection(self, path: KeyPath, table: Mapping[str, Any], models: Models) -> Grammar | None:
        """Check the rules between the keys of a connection, and that its system has them; return that system's grammar.

        ``models`` returns the model of the whole table for a system.
        """
        grammar = grammar_of(table.get("url", ""))
        if grammar is not None:
            self._check_support(path, table, grammar.name, models)
        model_for(table, models).check(path, table, self._problem)
        return grammar

    def _check_support(self, path: KeyPath, table: Mapping[str, Any], system: str, models: Models) -> None:
        """Report the keys that the model of ``system`` lacks and those of other systems have, with its advice."""
        own, others = models(system), {each.name: models(each.name) for each in grammars()}
        names = {alias: key for model in others.values() for alias, key in model.aliases.items()}
        for key, systems in keys_of_others(table, own, others):
            message = f"is not supported for {system}: it is a key for {every(systems)}"
            advice = own.lacks.get(names.get(str(key[0]), str(key[0])))
            self._problem((*path, *key), message if advice is None else f"{message}; {advice}")

    def _check_columns(self, path: KeyPath, grammar: Grammar, chooser: Mapping[str, Any]) -> None:
        own, columns = row_of(grammar.name).names, chooser.get("columns")
        for index, name in enumerate(columns if isinstance(columns, list) else ()):
            if isinstance(name, str) and name not in own and name in _ALL_COLUMNS:
                self._problem((*path, index), f'records of {grammar.name} have no "{name}"')

    def _check_topics(self, path: KeyPath, source: dict[str, Any], grammar: Grammar | None) -> None:
        topics = source.get("topics")
        if source and "topics" not in source and "topics_pattern" not in source:
            example = (grammar or grammars()[0]).topic_example
            self._problem(
                (*path, "topics"), f'is required: the names of the topics, such as ["{example}"], or topics_pattern'
            )
        if source and "start" not in source and path[:1] != ("spark",):
            self._problem((*path, "start"), f"is required, because it has no safe default: {start_choices(grammar)}")
        if "topics" in source and "topics_pattern" in source:
            self._problem((*path, "topics_pattern"), "topics is given too: use one of them")
        if topics == []:
            self._problem((*path, "topics"), "names no topic")
        if grammar is None:
            return
        seen: set[str] = set()
        for index, text in enumerate(topics if isinstance(topics, list) else ()):
            try:
                name, whole = topic_names(grammar, text)
            except ValueError:
                continue  # the model reports it
            for other in sorted({name, whole} & seen):
                what = "is repeated" if name == other else f'is part of "{other}" above'
                self._problem((*path, "topics", index), f'"{text}" {what}')
            seen.add(name)
        for key in ("start", "end"):
            self._check_positions((*path, key), source.get(key), seen, grammar)

    def _check_positions(self, path: KeyPath, start: object, topics: Set[str], grammar: Grammar) -> None:
        if not isinstance(start, dict) or (path[-1] == "start" and group_named(start, grammar) is not None):
            return
        for name, text in start.items():
            try:
                places = set(grammar.partition(name))
                parse_start({name: text}, grammar)
            except ValueError as exc:
                self._problem((*path, name), str(exc).removeprefix(f'"{name}": '))
                self._told.add(path)
                continue
            if topics and not places & topics:
                self._problem((*path, name), "is not a partition of a topic of this pipeline")

    def _check_sink(self, path: KeyPath, sink: dict[str, Any]) -> None:
        sink_type = sink.get("type")
        if not isinstance(sink_type, str) or not sink_type:
            return
        try:
            what = sink_kind(sink_type)
        except ValueError as exc:
            self._problem((*path, "type"), str(exc))
            return
        if what == "plugin":
            own = {key: sink.pop(key) for key in list(sink) if key not in _COMMON_KEYS}
            sink["options"] = own
        for key in ("options", "connection") if what != "plugin" else ():
            if key in sink:
                self._problem((*path, key), self._unknown((*path, key)))
                del sink[key]
        if what == "topic":
            check_topic_sink(path, sink, self._problem)
            grammar = self._check_connection(path, sink["connection"], connection_model)
            if grammar is not None:
                source = self._tree["pipelines"][path[1]].get("source")
                check_target(path, sink, source if isinstance(source, dict) else {}, grammar, self._problem)
        elif what != "plugin":
            for key, instead in _ONLY_TOPICS.items():
                if key in sink:
                    self._problem((*path, key), f"is for topics{instead}")
        if what == "plain":
            for key in DATASET_KEYS:
                if key in sink:
                    self._problem((*path, key), f"is for files: {sink_type} writes no files")
        for key in DATABASE_KEYS if what in ("dataset", "plain", "topic") else ():
            if key in sink:
                self._problem((*path, key), f"is for {' and '.join(DATABASE_TYPES)}")
        if what == "database":
            for key in (*DATASET_KEYS, "writers"):
                if key in sink and key not in ("table", "create"):
                    self._problem((*path, key), f"is for files: {sink_type} writes no files")
            check_database(path, sink, self._problem)
        if what == "dataset" and "path" not in sink:
            self._problem((*path, "path"), "is required: the folder for the files")
        if what == "dataset":
            check_store(path, sink, self._problem)
            check_catalog(path, sink, self._problem)
            check_topic_places(path, sink, self._problem)
            self._name_topics(path, sink)
        if sink_type == "stdout" and isinstance(sink.get("writers"), int) and sink["writers"] > 1:
            self._problem((*path, "writers"), "there is only one stdout")
        compression = sink.get("compression")
        if what == "dataset" and isinstance(compression, str) and compression:
            try:
                check_compression(sink_type, compression)
            except ValueError as exc:
                self._problem((*path, "compression"), str(exc))
        columns = sink.get("columns")
        if isinstance(columns, list):
            if not columns:
                self._problem((*path, "columns"), "names no column: remove it to keep all columns")
            for index, column in enumerate(columns):
                if column in columns[:index]:
                    self._problem((*path, "columns", index), f'"{column}" is repeated')
        if what == "dataset":
            if sink_type in DATASET_TYPES:
                sink.setdefault("compression", default_compression(sink_type))
            sink.setdefault("writers", self._default_writers())

    def _name_topics(self, path: KeyPath, sink: dict[str, Any]) -> None:
        """Write the topics of the table ``names`` as the system writes them."""
        source, names = self._tree["pipelines"][path[1]].get("source"), sink.get("names")
        grammar = grammar_of(source.get("url", "")) if isinstance(source, dict) else None
        if grammar is None or not isinstance(names, dict):
            return
        written: dict[str, Any] = {}
        for text, name in names.items():
            try:
                written[grammar.topic(text)] = name
            except ValueError as exc:
                self._problem((*path, "names", text), str(exc))
        sink["names"] = written

    def _default_writers(self) -> int:
        try:
            given = parse_size(self._tree["daemon"]["memory"])
        except (KeyError, TypeError, ValueError):
            given = DaemonConfig.model_construct().memory
        return 1 if given < SMALL_MEMORY else min(2, cores())

    def _check_shared_paths(self) -> None:
        shape_of: dict[str, tuple[str, dict[str, Any]]] = {}
        for name, _, sink in self._pipelines():
            if not isinstance(sink.get("path"), str) or "options" in sink:
                continue
            folder = os.path.realpath(sink["path"])
            shape = {key: sink.get(key) for key in ("type", "columns", "split", "partition_by")}
            other, its_shape = shape_of.setdefault(folder, (name, shape))
            different = [key for key in shape if shape[key] != its_shape[key]]
            if different:
                self._problem(
                    ("pipelines", name, "sink", "path"),
                    f"is also the folder of pipeline {other}, but with another {' and another '.join(different)}",
                )

    def _check_memory(self, config: Config) -> None:
        writers = sum(pipeline.sink.writers for pipeline in config.pipelines.values())
        needed = len(config.pipelines) * CONNECTION_FLOOR + writers * WRITER_FLOOR
        if config.daemon.memory < needed:
            count = len(config.pipelines)
            self._problem(
                ("daemon", "memory"),
                f"{format_size(config.daemon.memory)} is too little: {count} pipeline{'s' * (count > 1)} with "
                f"{writers} writer{'s' * (writers > 1)} in all "
                f"need{'s' * (count == 1)} at least {format_size(needed)}",
            )

    def _validated(self, model: type[M]) -> M | None:
        try:
            return model.model_validate(self._tree)
        except ValidationError as exc:
            errors = exc.errors(include_url=False)
        for error in errors:
            path: KeyPath = error["loc"]
            if path[2:4] == ("sink", "connection"):
                path = (*path[:3], *path[4:])  # where its keys stand in the file
            if path[-1] == "[key]":  # pydantic's mark for an error in the key itself
                self._problem(path[:-1], f"this name {self._message(error, path[:-1])}")
            else:
                self._problem(path, self._message(error, path))
        return None

    # -- messages

    def _message(self, error: ErrorDetails, path: KeyPath) -> str:
        key, kind_of_error = str(path[-1]), error["type"]
        if kind_of_error == "value_error":
            return str(error["ctx"]["error"])
        if kind_of_error == "missing":
            required = {**_REQUIRED, **SPARK_REQUIRED} if path[0] == "spark" else _REQUIRED
            return required.get(key, "is required")
        if kind_of_error == "extra_forbidden":
            return self._unknown(path)
        if kind_of_error == "literal_error":
            value = error["input"]
            choices = [str(choice) for choice in self._choices(path)]
            listed = either([f'"{choice}"' for choice in choices])
            if "auth" in path:
                return f"must be {listed}"  # what was written may be a secret that belongs to another key
            shown = f'"{value}"{nearest(value, choices)}' if isinstance(value, str) else kind(value)
            return f"must be {listed}, not {shown}"
        if kind_of_error == "tuple_type":
            return (
                f'must be an array such as ["{error["input"]}"]'
                if isinstance(error["input"], str)
                else (f"must be an array, not {kind(error['input'])}")
            )
        return f"must be a table, not {kind(error['input'])}"

    def _problem(self, path: KeyPath, message: str) -> None:
        if path in self._told:
            return  # only the first problem of a key is reported: it has to be corrected first
        for placeholder, became in self._substituted.get(path, ()):
            if len(became) > 3:
                message = message.replace(became, placeholder)
        self._told.add(path)
        self._found.append((self._line(path), self._place(path, message)))

    def _place(self, path: KeyPath, message: str) -> Problem:
        return Problem(f"{self._name}:{self._line(path)}", _dotted(self._written.get(path, path)), message)

    def _moved(self, path: KeyPath, now: KeyPath) -> None:
        """Take the key at ``path`` for that at ``now``: its line, and what was substituted in it."""
        self._written[now] = path
        self._lines = {now: self._line(path), **self._lines}
        self._substituted = {now: self._substituted.get(path, []), **self._substituted}

    def _table_of(self, path: KeyPath) -> type[Table] | None:
        """Return the model of the table at a path of keys, None if there is no such table."""
        model: type[Table] | None = self._root
        tree: Any = self._tree
        named = False
        for key in path:
            tree = tree.get(key) if isinstance(tree, dict) else None
            if named:  # the name of a pipeline or job
                named = False
                continue
            field = None if model is None else model.model_fields.get(str(key))
            model = None if field is None else table_in(field.annotation)
            named = field is not None and get_origin(field.annotation) is dict
            if model is SourceConfig and isinstance(tree, dict):
                model = model_for(tree, source_model)
            elif model is SparkDataset and isinstance(tree, dict):
                model = spark_source_model(tree)
        return None if named else model

    def _known_keys(self, path: KeyPath) -> list[str]:
        table = self._table_of(path)
        return [key for key in table.known_keys() if key not in ("options", "connection")] if table else []

    def _unknown(self, path: KeyPath) -> str:
        """Return the message for an unknown key: with the one table that has such a key, or with a similar key."""
        key = str(path[-1])
        inside = path[:2] if len(path) > 2 else ()
        homes = [home for home in (*self._tables(inside), *self._tables(("daemon",))) if key in self._known_keys(home)]
        if len(set(homes)) == 1:
            return f"unknown key here: it is a key of [{_dotted(homes[0])}]"
        return f"unknown key{nearest(key, self._known_keys(path[:-1]))}"

    def _tables(self, path: KeyPath) -> Iterator[KeyPath]:
        """Yield the paths of the table at ``path`` and of those within it, without those that the user names."""
        table = self._table_of(path)
        if table is None:
            return
        yield path
        for name, field in table.model_fields.items():
            if table_in(field.annotation) is not None and get_origin(field.annotation) is not dict:
                yield from self._tables((*path, name))

    def _choices(self, path: KeyPath) -> tuple[Any, ...]:
        table = self._table_of(path[:-1])
        annotation = table.model_fields[str(path[-1])].annotation if table else None
        return getattr(annotation, "__args__", ())

    def _line(self, path: KeyPath) -> int:
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 1


def _syntax_problem(message: str, text: str, name: str) -> Problem:
    what, _, place = message.removesuffix(")").rpartition(" (at ")
    line = place.removeprefix("line ").partition(",")[0]
    if not line.isdecimal():  # "(at end of document)"
        line = str(text.count("\n") + 1)
    return Problem(f"{name}:{line}", "", f"is not TOML: {what or message}")


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = all(letter.isalnum() or letter in "_-" for letter in part)
            text += ("." if text else "") + (part if plain and part else f'"{part}"')
    return text
