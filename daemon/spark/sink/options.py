"""The options of a query that writes: texts to checked values; all mistakes are reported together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastwire.systems import SYSTEMS, grammar_of

from ...config import ConfigError, Connection, Problem, parse_connection
from ...config.brokers.connection import connection_model
from ...config.values.text import nearest
from ...systems.registry import system_named
from ...systems.writer import WriteOptions
from ..source.dialects import elsewhere_hint
from ..source.dotted import in_table, keys_of_tables
from ..source.values import one_of, text, whole

_KNOWN: Mapping[str, Callable[[str], Any]] = {
    "servers": text,
    "system": text,
    "topic": text,
    "compression": text,
    "batchRecords": whole(1),
    "batching": one_of("key", "grouped", "mixed"),
    "keyHash": one_of("java", "murmur3"),
}
# Options of Spark's own that it passes on, in lower case.
_OF_SPARK = frozenset(
    {
        "path",
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)
_OF_CONNECTION = {"clientId": "client_id", "listener": "listener"}  # keys that connections of some systems have


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The validated options of a query that writes. Without a ``topic`` the rows name theirs."""

    connection: Connection
    topic: str | None
    writing: WriteOptions


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options. Raises ConfigError with all that is wrong; no message holds a secret."""
    given = {name.lower(): value for name, value in given.items()}
    grammar = grammar_of(given.get("servers", ""))
    system = SYSTEMS[0] if grammar is None else grammar.name
    own = {option: text for option, key in _OF_CONNECTION.items() if key in connection_model(system).model_fields}
    values, problems = _values(given, {**_KNOWN, **own})
    if "servers" not in given:
        problems.append(Problem("", "servers", "is missing: the brokers, such as kafka://host:9092"))
    connection = None
    if "servers" in values:
        keys = {"url": values["servers"], **{_OF_CONNECTION[name]: values[name] for name in own.keys() & values.keys()}}
        try:
            connection = parse_connection(keys | keys_of_tables(given, system))
        except ConfigError as exc:
            problems += [Problem("", "servers" if one.key == "url" else one.key, one.message) for one in exc.problems]
    if connection is not None and values.get("system", connection.system) != connection.system:
        problems.append(Problem("", "system", f'is "{values["system"]}", and servers says {connection.system}'))
    if problems or connection is None:
        raise ConfigError(problems)
    compression = values.get("compression")
    options = SinkOptions(
        connection,
        values.get("topic"),
        WriteOptions(
            compression=None if compression is None else compression.upper(),
            batch=values.get("batchRecords", 1000),
            batching=values.get("batching", "key"),
            hashing=values.get("keyHash", "java"),
        ),
    )
    _check_by_system(options)
    return options


def _values(
    given: Mapping[str, str], known: Mapping[str, Callable[[str], Any]]
) -> tuple[dict[str, Any], list[Problem]]:
    lower = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    problems = []
    for name, value in given.items():
        if name in lower:
            try:
                values[lower[name]] = known[lower[name]](value)
            except ValueError as exc:
                problems.append(Problem("", lower[name], str(exc)))
        elif name not in _OF_SPARK and not in_table(name):
            hint = elsewhere_hint(name) or nearest(name, known)
            problems.append(Problem("", name, f"is not an option for writing{hint}"))
    return values, problems


def _check_by_system(options: SinkOptions) -> None:
    """Raise ConfigError for what the system does not have; nothing is connected."""
    system = system_named(options.connection.system)
    try:
        if options.topic is not None:
            system.grammar.topic(options.topic)
    except ValueError as exc:
        raise ConfigError([Problem("", "topic", str(exc))]) from None
    try:
        system.open_writer(options.connection, options.topic or "t", options.writing)
    except ValueError as exc:
        raise ConfigError([Problem("", "compression", str(exc))]) from None
