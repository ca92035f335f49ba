"""The options of ``format("fastwire")``: texts to checked values; every mistake is told at once, with its name."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastwire.columns.schema import column_names
from fastwire.position import Position, parse_position
from fastwire.pulsar.namespace import TopicPattern, parse_pattern
from fastwire.pulsar.topic import parse_topic

from ..config import ConfigError, Problem, SourceConfig, parse_duration, parse_size, parse_source
from ..config.text import nearest
from .ranges import Partition
from .rows import DEFAULT_COLUMNS

__all__ = ["Options", "Where", "columns_of", "parse_options"]

SYSTEMS = ("pulsar",)
EARLIEST, LATEST = -2, -1  # in the JSON of positions, as in Spark's own Kafka source

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Where:
    """A beginning or an end: ``earliest``, ``latest``, positions by partition, or a time in milliseconds since 1970.

    ``positions`` and ``times`` hold what is said of single partitions; others get ``kind``.
    """

    kind: Literal["earliest", "latest", "time"]
    time_ms: int = 0
    positions: Mapping[Partition, Position | Literal["earliest", "latest"]] | None = None
    times: Mapping[Partition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a query has asked for."""

    source: SourceConfig  # the brokers, who we are to them, TLS; its other fields mean nothing here
    topics: tuple[str, ...]
    assigned: frozenset[Partition] | None
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
    subscription: str
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
    window: int
    pushes_filters: bool

    @property
    def system(self) -> str:
        """The message system."""
        return self.source.system


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Check the options of one query. Raises ConfigError with all that is wrong; no message holds a secret."""
    return _Reading(given, streaming).options()


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that options ask for; other options are not looked at. Raises ConfigError."""
    return _Reading(given, streaming=True).columns()


def _whole(lowest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < lowest:
            raise ValueError(f"must be a whole number of at least {lowest}")
        return int(text)

    return parse


def _switch(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.strip().lower() == "true"


def _milliseconds(text: str) -> float:
    return _whole(0)(text) / 1000


def _size(text: str) -> int:
    return _whole(1)(text) if text.strip().isdecimal() else parse_size(text)


def _one_of(*choices: str) -> Callable[[str], Any]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {' or '.join(choices)}{nearest(text, choices)}")
        return text

    return parse


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def _list(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("is empty")
    return names


def _topics(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_topic(name) for name in _list(text)))


def _topic(text: str) -> str:
    topic = parse_topic(text)
    if not topic.persistent:
        raise ValueError(f'"{text}": a non-persistent topic keeps nothing that could be read by position')
    return str(topic)


def _json(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"must be JSON such as {example}")
    return found


def _assigned(text: str) -> frozenset[Partition]:
    example = '{"topic":[0,1]}'
    found = set()
    for name, indexes in _json(text, example).items():
        if not isinstance(indexes, list) or not all(isinstance(each, int) and each >= -1 for each in indexes):
            raise ValueError(f"must be JSON such as {example}")
        found |= {Partition(_topic(name), index) for index in indexes}
    return frozenset(found)


def _by_partition(text: str, example: str, parse: Callable[[Any], T]) -> dict[Partition, T]:
    found: dict[Partition, T] = {}
    for name, table in _json(text, example).items():
        if not isinstance(table, dict) or not all(index.lstrip("-").isdecimal() for index in table):
            raise ValueError(f"must be JSON such as {example}")
        found |= {Partition(_topic(name), int(index)): parse(each) for index, each in table.items()}
    return found


def _position(value: Any) -> "Position | Literal['earliest', 'latest']":
    if value in (EARLIEST, LATEST):
        return "earliest" if value == EARLIEST else "latest"
    if not isinstance(value, str):
        raise ValueError(f'a position is text such as "12:34", {EARLIEST} (earliest) or {LATEST} (latest)')
    return parse_position("pulsar", value)


def _place(text: str) -> Where:
    if text.strip().lower() in ("earliest", "latest"):
        return Where("earliest" if text.strip().lower() == "earliest" else "latest")
    if not text.lstrip().startswith("{"):
        raise ValueError(f"must be earliest, latest or JSON{nearest(text, ('earliest', 'latest'))}")
    return Where("latest", positions=_by_partition(text, '{"topic":{"0":"12:34","1":-2}}', _position))


def _time(text: str) -> Where:
    return Where("time", time_ms=_whole(0)(text))


def _times(text: str) -> Where:
    def parse(value: Any) -> int:
        return _whole(0)(str(value))

    return Where("latest", times=_by_partition(text, '{"topic":{"0":1700000000000}}', parse))


_KNOWN: dict[str, Callable[[str], Any]] = {
    "system": _text,
    "servers": _text,
    "subscribe": _topics,
    "subscribePattern": parse_pattern,
    "assign": _assigned,
    "startingOffsets": _place,
    "startingTimestamp": _time,
    "startingOffsetsByTimestamp": _times,
    "startingOffsetsByTimestampStrategy": _one_of("error", "latest"),
    "endingOffsets": _place,
    "endingTimestamp": _time,
    "endingOffsetsByTimestamp": _times,
    "maxRecordsPerTrigger": _whole(1),
    "maxOffsetsPerTrigger": _whole(1),
    "maxBytesPerTrigger": _size,
    "minOffsetsPerTrigger": _whole(1),
    "maxTriggerDelay": parse_duration,
    "minPartitions": _whole(1),
    "maxRecordsPerPartition": _whole(1),
    "failOnDataLoss": _switch,
    "subscription": _text,
    "subscriptionPrefix": _text,
    "commitOffsets": _switch,
    "failOnCommitError": _switch,
    "includeHeaders": _switch,
    "includeMetadata": _switch,
    "columns": _list,
    "pollTimeoutMs": _milliseconds,
    "fetchOffset.numRetries": _whole(0),
    "fetchOffset.retryIntervalMs": _milliseconds,
    "offsetPollIntervalMs": _milliseconds,
    "topicRefreshIntervalMs": _milliseconds,
    "batchRows": _whole(1),
    "batchBytes": _size,
    "prefetchBatches": _whole(1),
    "receiverQueueSize": _whole(1),
    "filterPushdown": _switch,
}
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "filterPushdown")
_STREAM_ONLY = (
    "maxRecordsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
_TOPICS = ("subscribe", "subscribePattern", "assign")
_COLUMNS = ("columns", "includeHeaders", "includeMetadata")
# What other systems call it.
_ELSEWHERE = {
    "groupId": "subscription",
    "groupIdPrefix": "subscriptionPrefix",
    "isolationLevel": "",
    "fetchMaxBytes": "",
}
_TABLES = ("auth.", "tls.", "encryption.")


class _Reading:
    """One pass over the options of one query."""

    def __init__(self, given: Mapping[str, str], streaming: bool) -> None:
        self._given = {name.lower(): text for name, text in given.items()}
        self._streaming = streaming
        self._problems: list[Problem] = []
        self._values: dict[str, Any] = {}

    def options(self) -> Options:
        self._read()
        source = self._source()
        columns = self._columns()
        self._contradictions()
        if self._problems or source is None:
            raise ConfigError(self._problems)
        get = self._values.get
        subscription = get("subscription", "")
        return Options(
            source=source,
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
            prefix=get("subscriptionPrefix", "fastwire-spark"),
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
            window=get("receiverQueueSize", 10_000),
            pushes_filters=get("filterPushdown", False),
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
        known = {name.lower(): name for name in _KNOWN}
        elsewhere = {name.lower(): name for name in _ELSEWHERE}
        for lower, text in self._given.items():
            if lower in known:
                name = known[lower]
                try:
                    self._values[name] = _KNOWN[name](text)
                except ValueError as exc:
                    self._wrong(name, str(exc))
            elif lower in elsewhere:
                instead = _ELSEWHERE[elsewhere[lower]]
                hint = f", which has {instead} instead" if instead else ""
                self._wrong(elsewhere[lower], f"is not an option of Pulsar{hint}")
            elif not lower.startswith(_TABLES):
                hint = nearest(lower, known)
                for name in known:
                    hint = hint.replace(f'"{name}"', f'"{known[name]}"')
                self._wrong(lower, f"is not an option of this source{hint}")

    def _source(self) -> SourceConfig | None:
        """Brokers, credentials and TLS, under the same names and rules as in a configuration file."""
        url = self._values.get("servers")
        if url is None:
            if "servers" not in self._given:
                self._wrong("servers", 'is missing: the brokers, such as "pulsar://127.0.0.1:6650"')
            url = "pulsar://127.0.0.1"
        keys: dict[str, Any] = {"url": url, "topics": ["-"], "subscription": "-", "start": "earliest"}
        for name, text in self._given.items():
            if name.startswith(_TABLES):
                _put(keys, name.split("."), text)
        try:
            source = parse_source(keys)
        except ConfigError as exc:
            for problem in exc.problems:
                self._wrong("servers" if problem.key == "url" else problem.key, problem.message)
            return None
        system = self._values.get("system", source.system)
        if system != source.system:
            self._wrong("system", f'is "{system}", and servers says {source.system}')
        elif system not in SYSTEMS:
            self._wrong("servers", f"{system} is not read by this source yet: known are {', '.join(SYSTEMS)}")
        return source

    def _columns(self) -> tuple[str, ...]:
        names = column_names("pulsar")
        wanted = set(DEFAULT_COLUMNS)
        if not self._values.get("includeMetadata", True):
            wanted = {"key", "value"}
        if "columns" in self._values:
            lower = {name.lower(): name for name in names}
            asked = self._values["columns"]
            wanted = set(names) if asked == ("*",) else {lower.get(name.lower(), name) for name in asked}
            for name in sorted(wanted - set(names)):
                known = nearest(name, names) or ": known are " + ", ".join(names)
                self._wrong("columns", f'"{name}" is not a column{known}')
        if self._values.get("includeHeaders"):
            wanted.add("headers")
        return tuple(name for name in names if name in wanted)

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
        if values.get("commitOffsets") and "subscription" not in values:
            self._wrong("commitOffsets", "needs a subscription whose cursor is moved")
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


def _put(keys: dict[str, Any], path: list[str], text: str) -> None:
    """Enter one dotted option; what is a table of names there is JSON here, because Spark forgets the case of names."""
    for name in path[:-1]:
        table = keys.setdefault(name, {})
        if not isinstance(table, dict):
            return
        keys = table
    try:
        keys[path[-1]] = json.loads(text) if path[-1] == "private_keys" else text
    except ValueError:
        keys[path[-1]] = text
