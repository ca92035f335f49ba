"""From a file to a checked Config: every mistake is told at once, with its key and line."""

import os
import tomllib
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fastwire.columns.schema import COLUMNS

from .access import AuthConfig, EncryptionConfig, OAuth2Config, TlsConfig
from .fields import (
    DATASET_TYPES,
    PLAIN_TYPES,
    START_CHOICES,
    check_compression,
    default_compression,
    parse_start,
    sink_kind,
)
from .machine import cores
from .model import Config, DaemonConfig, Landing, PipelineConfig, RollConfig, SinkConfig, SourceConfig
from .problem import ConfigError, Problem
from .spark import SPARK_REQUIRED, SparkConfig, SparkDecode, SparkDedupe, SparkOutput, SparkSource, check_spark
from .systems import PULSAR, System, system_of
from .text import Interpolation, KeyPath, format_size, interpolate, key_lines, kind, nearest, parse_size

__all__ = ["load_config", "parse_config", "parse_source"]


def load_config(path: str | Path, environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check a file. Raises ConfigError, also when the file cannot be read."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError([Problem(str(path), "", f"cannot read the configuration: {exc.strerror}")]) from None
    except UnicodeDecodeError as exc:
        raise ConfigError([Problem(str(path), "", f"is not UTF-8 text (byte {exc.start})")]) from None
    config = parse_config(text, environ, name=str(path))
    config._path = path
    return config


def parse_config(text: str, environ: Mapping[str, str] = os.environ, name: str = "configuration") -> Config:
    """Check a configuration and return it with all defaults filled in. ``name`` stands for the file in messages."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError([_syntax_problem(str(exc), text, name)]) from None
    reading = _Reading(name, key_lines(text), interpolate(raw, environ))
    return reading.config()


def parse_source(keys: Mapping[str, Any]) -> SourceConfig:
    """Check what stands in ``[pipelines.NAME.source]`` where it comes from elsewhere: the options of a command.

    Raises ConfigError, whose problems name the key alone.
    """
    memory, sink = "1GiB", {"type": "discard"}
    tree = {"daemon": {"memory": memory}, "pipelines": {"it": {"source": dict(keys), "sink": sink}}}
    try:
        return _Reading("", {}, Interpolation(tree)).config().pipelines["it"].source
    except ConfigError as exc:
        found = [Problem("", key.removeprefix("pipelines.it.source."), message) for _, key, message in exc.problems]
    raise ConfigError(found)


# -- from a tree to models -------------------------------------------------------------------------------------------

_REQUIRED: Mapping[str, str] = {
    "pipelines": "is required: at least one [pipelines.NAME.source] with its [pipelines.NAME.sink]",
    "source": "is required: a table [pipelines.NAME.source]",
    "sink": "is required: a table [pipelines.NAME.sink]",
    "start": f"is required, because no choice suits everybody: {START_CHOICES}",
    "subscription": "is required: the name under which the broker keeps the progress",
    "url": 'is required: the broker, such as "pulsar://127.0.0.1:6650"',
    "topics": 'is required: the names of the topics, such as ["persistent://public/default/orders"], or topics_pattern',
    "type": f"is required: {', '.join((*DATASET_TYPES, *PLAIN_TYPES))} or the name of a plug-in",
}
# Keys that mean something for one system only.
_ONLY_OF = {
    "pulsar": {"subscription_type", "listener", "incarnation"},
    "kafka": {"isolation", "group_protocol", "group_instance_id", "assignor", "session_timeout", "metadata_max_age"},
}
_ALL_COLUMNS = {column.name for columns in COLUMNS.values() for column in columns}
_WAYS_IN = ["token", "token_file", "user", "oauth2"]
_DATASET_KEYS = ("path", "compression", "split", "partition_by", "create")
_COMMON_KEYS = ("type", "columns", "roll", "writers")

# What cannot be had for less (bytes): one connection's receive buffer, open chunk and output of one read; two chunks
# on their way to each writer and its smallest row group.
CONNECTION_FLOOR = 16 * 2**20
WRITER_FLOOR = 16 * 2**20
SMALL_MEMORY = 256 * 2**20


class _Reading:
    """One document on its way to a Config; collects what is wrong on the way."""

    def __init__(self, name: str, lines: Mapping[KeyPath, int], document: Interpolation) -> None:
        self._name = name
        self._lines = lines
        self._tree = document.tree
        self._substituted = document.substituted
        self._found: list[tuple[int, Problem]] = []
        self._told: set[KeyPath] = set()
        for path, message in document.problems:
            self._problem(path, message)

    def config(self) -> Config:
        for name, source, sink in self._pipelines():
            self._check_name("pipelines", name)
            self._rename_group(("pipelines", name, "source"), source)
            self._check_source(("pipelines", name, "source"), source, sink)
            self._check_sink(("pipelines", name, "sink"), sink)
        self._check_shared_paths()
        jobs = self._tree.get("spark")
        if isinstance(jobs, dict):
            check_spark(jobs, self._problem)
            for name, job in jobs.items():
                self._check_name("spark", name)
                brokers = job.get("source") if isinstance(job, dict) else None
                if isinstance(brokers, dict) and "url" in brokers:
                    self._rename_group(("spark", name, "source"), brokers)
                    self._check_source(("spark", name, "source"), brokers, brokers)
        config = self._validated()
        if config is not None:
            self._check_memory(config)
        if self._found:
            raise ConfigError([problem for _, problem in sorted(self._found, key=lambda found: found[0])])
        assert config is not None  # without a problem there is a model
        return config

    # What belongs together is looked at in the tree and not in the models, so that one mistake does not hide another.

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
            self._problem((what, name), "a name holds letters, digits and _ . - only")

    def _rename_group(self, path: KeyPath, source: dict[str, Any]) -> None:
        if "group" not in source:
            return
        if "subscription" in source:
            self._problem((*path, "group"), "is an alias of subscription, which stands here too")
        source.setdefault("subscription", source["group"])
        del source["group"]
        self._lines = {(*path, "subscription"): self._line((*path, "group")), **self._lines}

    def _check_source(self, path: KeyPath, source: dict[str, Any], chooser: Mapping[str, Any]) -> None:
        """``chooser`` is the table that may hold ``columns``."""
        url, auth, tls = str(source.get("url", "")), source.get("auth"), source.get("tls")
        if isinstance(tls, dict):
            plain, encrypted = system_of(url).schemes
            if url.lower().startswith(f"{plain}://"):
                self._problem((*path, "tls"), f"needs an encrypted connection: {encrypted}:// in url")
            if "key" in tls and "cert" not in tls:
                self._problem((*path, "tls", "key"), "is the key of a certificate: cert is missing")
            if tls.get("verify") is False and "server_name" in tls:
                self._problem((*path, "tls", "server_name"), "is not looked at with verify = false")
        if isinstance(auth, dict):
            self._check_auth((*path, "auth"), auth)
            password = auth.get("password")
            if system_of(source.get("url", "")) is PULSAR and isinstance(password, str) and ":" in password:
                self._problem((*path, "auth", "password"), "holds a colon: Pulsar takes user:password apart there")
        self._check_topics(path, source)
        self._check_system(path, source)
        self._check_columns((*path[:-1], "source" if chooser is source else "sink", "columns"), source, chooser)

    def _check_system(self, path: KeyPath, source: dict[str, Any]) -> None:
        system = system_of(source.get("url", ""))
        for other, keys in _ONLY_OF.items():
            for key in sorted(keys & source.keys()) if other != system.name else ():
                self._problem((*path, key), f"is of no use with {system.name}: it is a key for {other}")

    def _check_columns(self, path: KeyPath, source: dict[str, Any], chooser: Mapping[str, Any]) -> None:
        system, columns = system_of(source.get("url", "")), chooser.get("columns")
        own = {column.name for column in COLUMNS[system.name]}
        for index, name in enumerate(columns if isinstance(columns, list) else ()):
            if isinstance(name, str) and name not in own and name in _ALL_COLUMNS:
                self._problem((*path, index), f'records of {system.name} have no "{name}"')

    def _check_auth(self, path: KeyPath, auth: dict[str, Any]) -> None:
        if not auth:
            self._problem(path, f"is empty: leave it out, or give {_either(_WAYS_IN)}")
        ways = [way for way in _WAYS_IN if way in auth]
        for way in ways[1:]:
            self._problem((*path, way), f"{ways[0]} stands here too: use one of them")
        if {"password", "password_file"} & auth.keys() and "user" not in auth:
            self._problem((*path, next(key for key in auth if key.startswith("password"))), "is of no use without user")
        if "user" in auth:
            self._need_one(path, "user", auth, ("password", "password_file"))
        if isinstance(auth.get("oauth2"), dict):
            self._check_oauth2((*path, "oauth2"), auth["oauth2"])

    def _check_oauth2(self, path: KeyPath, oauth2: dict[str, Any]) -> None:
        if "key_file" in oauth2:
            for key in ("client_id", "client_secret", "client_secret_file"):
                if key in oauth2:
                    self._problem((*path, key), "key_file stands here too, and holds it")
            return
        for key, why in (("client_id", "without key_file"), ("issuer_url", "without a key file that names it")):
            if key not in oauth2:
                self._problem((*path, key), f"is required {why}")
        self._need_one(path, "client_id", oauth2, ("client_secret", "client_secret_file"))

    def _need_one(self, path: KeyPath, needing: str, table: dict[str, Any], keys: tuple[str, str]) -> None:
        """``needing`` wants one of two keys beside it, and not both."""
        given = [key for key in keys if key in table]
        if not given:
            self._problem((*path, needing), f"needs {keys[0]} or {keys[1]}")
        elif len(given) > 1:
            self._problem((*path, keys[1]), f"{keys[0]} stands here too: use one of them")

    def _check_topics(self, path: KeyPath, source: dict[str, Any]) -> None:
        topics = source.get("topics")
        given = isinstance(self._tree[str(path[0])][path[1]].get("source"), dict)
        if given and "topics" not in source and "topics_pattern" not in source:
            self._problem((*path, "topics"), _REQUIRED["topics"])
        if "topics" in source and "topics_pattern" in source:
            self._problem((*path, "topics_pattern"), "topics stands here too: use one of them")
        if topics == []:
            self._problem((*path, "topics"), "names no topic")
        system = system_of(source.get("url", ""))
        seen: set[str] = set()
        for index, text in enumerate(topics if isinstance(topics, list) else ()):
            try:
                name, whole = _parts(system, text)
            except ValueError:
                continue  # the model says so
            for other in sorted({name, whole} & seen):
                what = "stands here twice" if name == other else f'is part of "{other}" above'
                self._problem((*path, "topics", index), f'"{text}" {what}')
            seen.add(name)
        self._check_positions((*path, "start"), source.get("start"), seen, system)

    def _check_positions(self, path: KeyPath, start: object, topics: Set[str], system: System) -> None:
        for name, text in start.items() if isinstance(start, dict) else ():
            try:
                parse_start({name: text}, system)
            except ValueError as exc:
                self._problem((*path, name), str(exc).removeprefix(f'"{name}": '))
                self._told.add(path)
                continue
            if topics and not set(system.place(name)) & topics:
                self._problem((*path, name), "is no partition of a topic of this pipeline")

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
        elif "options" in sink:
            self._problem((*path, "options"), f"unknown key{nearest('options', _known_keys(path))}")
            del sink["options"]
        if what == "plain":
            for key in _DATASET_KEYS:
                if key in sink:
                    self._problem((*path, key), f"is for files: {sink_type} has none")
        if what == "dataset" and "path" not in sink:
            self._problem((*path, "path"), "is required: the folder that the files go to")
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
                self._problem((*path, "columns"), "names no column: leave it out for all of them")
            for index, column in enumerate(columns):
                if column in columns[:index]:
                    self._problem((*path, "columns", index), f'"{column}" stands here twice')
        if what == "dataset":
            if sink_type in DATASET_TYPES:
                sink.setdefault("compression", default_compression(sink_type))
            sink.setdefault("writers", self._default_writers())

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

    def _validated(self) -> Config | None:
        try:
            if "spark" in self._tree:
                return Config.model_validate(self._tree)
            # Making what checks the tables of jobs takes as long as making what checks all others.
            landing = Landing.model_validate(self._tree)
            return Config.model_construct(landing.model_fields_set, **dict(landing))
        except ValidationError as exc:
            errors = exc.errors(include_url=False)
        for error in errors:
            path: KeyPath = error["loc"]
            self._problem(path, self._message(error, path))
        return None

    # Telling.

    def _message(self, error: ErrorDetails, path: KeyPath) -> str:
        key, kind_of_error = str(path[-1]), error["type"]
        if kind_of_error == "value_error":
            return str(error["ctx"]["error"])
        if kind_of_error == "missing":
            return (SPARK_REQUIRED if path[0] == "spark" else _REQUIRED).get(key, "is required")
        if kind_of_error == "extra_forbidden":
            return f"unknown key{nearest(key, _known_keys(path[:-1]))}"
        if kind_of_error == "literal_error":
            value = error["input"]
            choices = [str(choice) for choice in _choices(path)]
            listed = _either([f'"{choice}"' for choice in choices])
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
            return  # what was said of a key first is what its owner has to mend first
        for placeholder, became in self._substituted.get(path, ()):
            if len(became) > 3:
                message = message.replace(became, placeholder)
        line = self._line(path)
        self._told.add(path)
        self._found.append((line, Problem(f"{self._name}:{line}", _dotted(path), message)))

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


def _either(choices: list[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = all(letter.isalnum() or letter in "_-" for letter in part)
            text += ("." if text else "") + (part if plain and part else f'"{part}"')
    return text


def _table_of(path: KeyPath) -> type[BaseModel] | None:
    """Return the model behind a path of keys."""
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): Config,
        ("daemon",): DaemonConfig,
        ("pipelines", "*"): PipelineConfig,
        ("pipelines", "*", "source"): SourceConfig,
        ("pipelines", "*", "source", "auth"): AuthConfig,
        ("pipelines", "*", "source", "auth", "oauth2"): OAuth2Config,
        ("pipelines", "*", "source", "tls"): TlsConfig,
        ("pipelines", "*", "source", "encryption"): EncryptionConfig,
        ("pipelines", "*", "sink"): SinkConfig,
        ("pipelines", "*", "sink", "roll"): RollConfig,
        ("spark", "*"): SparkConfig,
        ("spark", "*", "source"): SparkSource,
        ("spark", "*", "source", "auth"): AuthConfig,
        ("spark", "*", "source", "auth", "oauth2"): OAuth2Config,
        ("spark", "*", "source", "tls"): TlsConfig,
        ("spark", "*", "source", "encryption"): EncryptionConfig,
        ("spark", "*", "decode"): SparkDecode,
        ("spark", "*", "dedupe"): SparkDedupe,
        ("spark", "*", "output"): SparkOutput,
    }
    named = path[:1] in (("pipelines",), ("spark",))
    general = tuple("*" if place == 1 and named else str(part) for place, part in enumerate(path))
    return models.get(general)


def _known_keys(path: KeyPath) -> list[str]:
    table = _table_of(path)
    keys = [field.alias or name for name, field in table.model_fields.items()] if table else []
    if table in (SourceConfig, SparkSource):
        keys.append("group")
    return [key for key in keys if key != "options"]


def _choices(path: KeyPath) -> tuple[Any, ...]:
    table = _table_of(path[:-1])
    annotation = table.model_fields[str(path[-1])].annotation if table else None
    return getattr(annotation, "__args__", ())


def _parts(system: System, text: object) -> tuple[str, str]:
    """The name of a topic, and of the one that it is a partition of where such names are topics, too."""
    if not isinstance(text, str):
        raise ValueError("no text")
    name = system.topic(text)
    return (name, system.place(name)[1]) if system is PULSAR else (name, name)
