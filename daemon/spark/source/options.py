"""The options of ``format("fastwire")``: texts to checked values; every mistake is told at once, with its name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastwire.grammar import TopicPattern
from fastwire.position import Position
from fastwire.systems import row_of

from ...config import ConfigError, Connection, Problem, parse_connection, parse_duration
from ...config.brokers.connection import connection_model
from ...config.values.text import nearest
from .dialects import EARLIEST, LATEST, Dialect, likely_dialect, option_elsewhere
from .dotted import in_table, keys_of_tables
from .ranges import QueryPartition
from .rows import default_columns
from .values import INT32, INT64, json_table, milliseconds, names, one_of, size, switch, text, whole

LANDED = "landedOffsets"
"""The option of jobs for the path of a file: positions that their tables have, at which batches end."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """A beginning or an end: ``earliest``, ``latest``, positions by partition, or a time in milliseconds since 1970.

    ``positions`` and ``times`` hold what is said of single partitions; others get ``kind``.
    """

    kind: Literal["earliest", "latest", "time"]
    time_ms: int = 0
    positions: Mapping[QueryPartition, Position | Literal["earliest", "latest"]] | None = None
    times: Mapping[QueryPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated options of a query."""

    connection: Connection
    topics: tuple[str, ...]
    assigned: frozenset[QueryPartition] | None
    pattern: TopicPattern | None
    starting: Where
    ending: Where
    no_record_that_young: Literal["error", "latest"]
    columns: tuple[str, ...]
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_delay_s: float
    min_partitions: int | None
    max_partition_rows: int | None
    fail_on_data_loss: bool
    subscription: str  # or the group, "" without one
    prefix: str
    commits: bool
    fail_on_commit_error: bool
    patience_s: float
    retries: int
    retry_s: float
    poll_s: float
    refresh_s: float
    batch_rows: int
    batch_bytes: int
    prefetch: int
    pushes_filters: bool
    landed: str  # the path of positions that batches end at, "" without one
    own: Mapping[str, Any]
    """The values of the options that are given and only this system has, by option."""

    @property
    def system(self) -> str:
        """The message system."""
        return self.connection.system


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Check the options of one query. Raises ConfigError with all that is wrong; no message holds a secret."""
    return _Reading(given, streaming).options()


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns for the options; other options are not checked. Raises ConfigError."""
    return _Reading(given, streaming=True).columns()


def _topics(given: str, dialect: Dialect) -> tuple[str, ...]:
    return tuple(dict.fromkeys(dialect.grammar.topic(name) for name in names(given)))


def _assigned(given: str, dialect: Dialect) -> frozenset[QueryPartition]:
    example = '{"topic":[0,1]}'
    found = set()
    for name, indexes in json_table(given, example).items():
        if not isinstance(indexes, list) or not all(type(each) is int for each in indexes):
            raise ValueError(f"must be JSON such as {example}")
        found |= {QueryPartition(dialect.grammar.topic(name), _index(str(index), name, dialect)) for index in indexes}
    return frozenset(found)


def _index(given: str, topic: str, dialect: Dialect) -> int:
    try:
        return whole(dialect.least_partition, INT32)(given)
    except ValueError as exc:
        raise ValueError(f"a partition of {topic} {exc}") from None


def _by_partition(given: str, example: str, dialect: Dialect, parse: Callable[[Any], T]) -> dict[QueryPartition, T]:
    found: dict[QueryPartition, T] = {}
    for name, table in json_table(given, example).items():
        if not isinstance(table, dict):
            raise ValueError(f"must be JSON such as {example}")
        topic = dialect.grammar.topic(name)
        found |= {QueryPartition(topic, _index(index, name, dialect)): parse(each) for index, each in table.items()}
    return found


def _place(given: str, dialect: Dialect) -> Where:
    def parse(value: Any) -> "Position | Literal['earliest', 'latest']":
        if value in (EARLIEST, LATEST):
            return "earliest" if value == EARLIEST else "latest"
        try:
            return dialect.grammar.positions.parse(str(value))
        except ValueError as exc:
            raise ValueError(f"{exc}; {EARLIEST} is the earliest, {LATEST} the latest") from None

    if given.strip().lower() in ("earliest", "latest"):
        return Where("earliest" if given.strip().lower() == "earliest" else "latest")
    if not given.lstrip().startswith("{"):
        raise ValueError(f"must be earliest, latest or JSON{nearest(given, ('earliest', 'latest'))}")
    return Where("latest", positions=_by_partition(given, dialect.places_example, dialect, parse))


def _time(given: str) -> Where:
    return Where("time", time_ms=whole(0, INT64)(given))


def _times(given: str, dialect: Dialect) -> Where:
    def parse(value: Any) -> int:
        return whole(0, INT64)(str(value))

    return Where("latest", times=_by_partition(given, '{"topic":{"0":1700000000000}}', dialect, parse))


def _known(dialect: Dialect) -> dict[str, Callable[[str], Any]]:
    """Return the parser of each option of a system."""

    def spoken(parse: Callable[[str, Dialect], Any]) -> Callable[[str], Any]:
        return lambda given: parse(given, dialect)

    known = {
        **_KNOWN,
        "subscribe": spoken(_topics),
        "subscribePattern": dialect.grammar.pattern,
        "assign": spoken(_assigned),
        "startingOffsets": spoken(_place),
        "startingOffsetsByTimestamp": spoken(_times),
        "endingOffsets": spoken(_place),
        "endingOffsetsByTimestamp": spoken(_times),
        **dialect.only,
    }
    return {name: parse for name, parse in known.items() if name not in dialect.instead}


_KNOWN: dict[str, Callable[[str], Any]] = {
    "system": text,
    "servers": text,
    "startingTimestamp": _time,
    "startingOffsetsByTimestampStrategy": one_of("error", "latest"),
    "endingTimestamp": _time,
    "maxRecordsPerTrigger": whole(1, INT64),
    "maxOffsetsPerTrigger": whole(1, INT64),
    "maxBytesPerTrigger": size(INT64),
    "minOffsetsPerTrigger": whole(1, INT64),
    "maxTriggerDelay": parse_duration,
    "minPartitions": whole(1),
    "maxRecordsPerPartition": whole(1, INT64),
    "failOnDataLoss": switch,
    "commitOffsets": switch,
    "failOnCommitError": switch,
    "includeHeaders": switch,
    "includeMetadata": switch,
    "columns": names,
    "pollTimeoutMs": milliseconds,
    "fetchOffset.numRetries": whole(0),
    "fetchOffset.retryIntervalMs": milliseconds,
    "offsetPollIntervalMs": milliseconds,
    "topicRefreshIntervalMs": milliseconds,
    "batchRows": whole(1),
    "batchBytes": size(INT32),
    "prefetchBatches": whole(1),
    "filterPushdown": switch,
    LANDED: text,
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
_STREAM_ONLY = (
    LANDED,
    "maxRecordsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
_TOPICS = ("subscribe", "subscribePattern", "assign")
_COLUMNS = ("columns", "includeHeaders", "includeMetadata")


class _Reading:
    """One pass over the options of one query."""

    def __init__(self, given: Mapping[str, str], streaming: bool) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._dialect = likely_dialect(self._given)
        self._streaming = streaming
        self._problems: list[Problem] = []
        self._values: dict[str, Any] = {}

    def options(self) -> Options:
        self._read()
        connection = self._connection()
        columns = self._columns()
        self._contradictions()
        if self._problems or connection is None:
            raise ConfigError(self._problems)
        get = self._values.get
        subscription = get(self._dialect.group, "")
        return Options(
            connection=connection,
            topics=get("subscribe", ()),
            assigned=get("assign"),
            pattern=get("subscribePattern"),
            starting=self._where("starting", "latest" if self._streaming else "earliest"),
            ending=self._where("ending", "latest"),
            no_record_that_young=get("startingOffsetsByTimestampStrategy", "error"),
            columns=columns,
            max_rows=get("maxRecordsPerTrigger", get("maxOffsetsPerTrigger")),
            max_bytes=get("maxBytesPerTrigger"),
            min_rows=get("minOffsetsPerTrigger"),
            max_delay_s=get("maxTriggerDelay", 900.0),
            min_partitions=get("minPartitions"),
            max_partition_rows=get("maxRecordsPerPartition"),
            fail_on_data_loss=get("failOnDataLoss", True),
            subscription=subscription,
            prefix=get(self._dialect.prefix, "fastwire-spark"),
            commits=get("commitOffsets", bool(subscription)),
            fail_on_commit_error=get("failOnCommitError", False),
            patience_s=get("pollTimeoutMs", 120.0),
            retries=get("fetchOffset.numRetries", 3),
            retry_s=get("fetchOffset.retryIntervalMs", 0.01),
            poll_s=get("offsetPollIntervalMs", 0.2),
            refresh_s=get("topicRefreshIntervalMs", 60.0),
            batch_rows=get("batchRows", 32_768),
            batch_bytes=get("batchBytes", 4 << 20),
            prefetch=get("prefetchBatches", 3),
            pushes_filters=get("filterPushdown", False),
            landed=get(LANDED, ""),
            own={name: self._values[name] for name in self._dialect.only.keys() & self._values.keys()},
        )

    def columns(self) -> tuple[str, ...]:
        self._read()
        self._problems = [problem for problem in self._problems if problem.key in _COLUMNS]
        columns = self._columns()
        if self._problems:
            raise ConfigError(self._problems)
        return columns

    def _wrong(self, name: str, message: str) -> None:
        self._problems.append(Problem("", name, message))

    def _read(self) -> None:
        dialect = self._dialect
        parsers = _known(dialect)
        known = {name.lower(): name for name in parsers}
        for lower, value in self._given.items():
            if lower in known:
                name = known[lower]
                try:
                    self._values[name] = parsers[name](value)
                except ValueError as exc:
                    self._wrong(name, str(exc))
            elif found := option_elsewhere(dialect, lower):
                name, equivalent = found
                hint = f", which has {equivalent} instead" if equivalent else ""
                self._wrong(name, f"is not an option of {dialect.grammar.title}{hint}")
            elif not in_table(lower):
                hint = nearest(lower, known)
                for name in known:
                    hint = hint.replace(f'"{name}"', f'"{known[name]}"')
                self._wrong(lower, f"is not an option of this source{hint}")

    def _connection(self) -> Connection | None:
        """Return the brokers, credentials and TLS, which have the names and rules of a configuration file."""
        url = self._values.get("servers")
        if url is None:
            if "servers" not in self._given:
                self._wrong("servers", f'is missing: the brokers, such as "{self._dialect.grammar.url_example}"')
            return None
        dialect = self._dialect
        own = connection_model(dialect.grammar.name).model_fields
        keys: dict[str, Any] = {"url": url}
        for key, option in dialect.options.items():
            if key in own and option in self._values:
                keys[key] = self._values[option]
        keys |= keys_of_tables(self._given, dialect.grammar.name)
        try:
            connection = parse_connection(keys)
        except ConfigError as exc:
            for problem in exc.problems:
                names = {"url": "servers", **dialect.options}
                self._wrong(names.get(problem.key, problem.key), problem.message)
            return None
        system = self._values.get("system", connection.system)
        if system != connection.system:
            self._wrong("system", f'is "{system}", and servers says {connection.system}')
        return connection

    def _columns(self) -> tuple[str, ...]:
        known = row_of(self._dialect.grammar.name).names
        wanted = set(default_columns(self._dialect.grammar.name))
        if not self._values.get("includeMetadata", True):
            wanted = {"key", "value"}
        if "columns" in self._values:
            lower = {name.lower(): name for name in known}
            asked = self._values["columns"]
            wanted = set(known) if asked == ("*",) else {lower.get(name.lower(), name) for name in asked}
            for name in sorted(wanted - set(known)):
                self._wrong("columns", f'"{name}" is not a column{nearest(name, known) or _all(known)}')
        if self._values.get("includeHeaders"):
            wanted.add("headers")
        return tuple(name for name in known if name in wanted)

    def _contradictions(self) -> None:
        values = self._values
        given = [name for name in _TOPICS if name.lower() in self._given]
        if len(given) != 1:
            self._wrong(" and ".join(given) or "subscribe", f"exactly one of {', '.join(_TOPICS)} says what to read")
        for name in _BATCH_ONLY if self._streaming else _STREAM_ONLY:
            if name in values:
                kind = "batch" if self._streaming else "streaming"
                self._wrong(name, f"is only for {kind} queries")
        if {"maxRecordsPerTrigger", "maxOffsetsPerTrigger"} <= values.keys():
            self._wrong("maxOffsetsPerTrigger", "is another name of maxRecordsPerTrigger: one of them")
        most = values.get("maxRecordsPerTrigger", values.get("maxOffsetsPerTrigger"))
        if most is not None and values.get("minOffsetsPerTrigger", 0) > most:
            self._wrong("minOffsetsPerTrigger", "is more than one trigger may take")
        if values.get("commitOffsets") and self._dialect.group not in values:
            self._wrong("commitOffsets", f"needs a {self._dialect.group}: whose progress is it?")
        if not self._streaming:
            self._check_batch(self._where("starting", "earliest"), "latest", "startingOffsets", "begin")
            self._check_batch(self._where("ending", "latest"), "earliest", "endingOffsets", "end")

    def _check_batch(self, where: Where, wrong: str, name: str, verb: str) -> None:
        single = where.positions.values() if where.positions is not None else ()
        if (where.kind == wrong and where.positions is None and where.times is None) or wrong in single:
            self._wrong(name, f"a batch query cannot {verb} at the {wrong}")

    def _where(self, which: str, default: Literal["earliest", "latest"]) -> Where:
        for name in (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"):
            if name in self._values:
                found: Where = self._values[name]
                if found.positions is not None or found.times is not None:
                    return Where(default, 0, found.positions, found.times)
                return found
        return Where(default)


def _all(known: Iterable[str]) -> str:
    return ": known are " + ", ".join(known)
