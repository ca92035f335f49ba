"""``[pipelines.NAME.source]``: the keys that all systems share, and the choice of the system's model by the URL."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator

from fastwire.grammar import NamePattern, TopicPattern
from fastwire.systems import grammar_of

from ..values.end import EndField, parse_end
from ..values.fields import Pattern, StartField, Text, Topic, group_named, parse_start
from ..values.text import KeyPath
from .connection import Connection, Tell, connection_model, model_for, model_of


class TopicChoice(NamedTuple):
    """The topics that are read: those of the full ``names``, or all that match ``pattern``."""

    names: tuple[str, ...]
    pattern: TopicPattern | None = None

    @property
    def name_pattern(self) -> NamePattern | None:
        """The pattern, if it is one of whole names."""
        return self.pattern if isinstance(self.pattern, NamePattern) else None


class Reading(Connection):
    """A connection and the topics that are read by it."""

    topics: tuple[Topic, ...] = ()
    """Topics by name; a partitioned topic means all its partitions."""
    topics_pattern: Pattern | None = None
    """Instead of topics: a pattern, which also finds later topics."""

    @property
    def chosen(self) -> TopicChoice:
        """The topics that are read."""
        return TopicChoice(self.topics, self.topics_pattern)


class SourceConfig(Reading):
    """The source of the records. Each system has a model of its own with more keys (``systems/<name>/config.py``)."""

    endless: ClassVar[str] = "is not supported: sources of this system have no end"
    """Why a source of the system has no key ``end``; "" if it has."""
    no_group_start: ClassVar[str] = "the brokers keep no progress of groups"
    """Why a source of the system cannot begin at another group's progress; "" if it can."""

    start: StartField
    """Where to start on a topic from which nothing has landed yet. Later partitions are read from their beginning.

    A table of positions names each partition that is there. A time before 1970 is `earliest`. Kafka also takes the
    committed offsets of another group: { group = "connect-orders" }.
    """
    end: EndField | None = None
    """End of a bounded run: "now" (what the log holds at the first start), a time that is past, or a table of positions
    as for `start`. Records behind it do not land. When all before it has landed the pipeline ends."""
    cluster: Text | None = None
    """Name of the cluster in the commit log; default: the hosts of the URL when the dataset was created.

    Set it to that name when other hosts lead to the same cluster.
    """
    on_corrupt: Literal["dead_letter", "stop"] = "dead_letter"
    """Reaction to an entry that cannot be decoded. dead_letter: keep it as a dead letter; stop: stop the partition."""

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report an end and a start that the sources of the system do not have."""
        super().check(path, table, tell)
        start, grammar = table.get("start"), grammar_of(table.get("url", ""))
        named = isinstance(start, Mapping) and grammar is not None and group_named(start, grammar) is not None
        if named and cls.no_group_start:
            tell((*path, "start"), f"names a group: {cls.no_group_start}")
        if cls.endless and "end" in table:
            tell((*path, "end"), cls.endless)

    @property
    def cluster_name(self) -> str:
        """The name of the cluster in the log of a new dataset."""
        return self.cluster or self.url.hosts

    @property
    def shared(self) -> bool:
        """True if several consumers receive the records of one log at the same time, unordered."""
        return False

    @property
    def divides(self) -> bool:
        """True if brokers divide the records among the consumers of one name."""
        return False


class SubscribedSource(SourceConfig):
    """A source of a system whose brokers keep the progress of consumers under a name."""

    aliases: ClassVar[Mapping[str, str]] = {"group": "subscription"}

    subscription: Text
    """Name of the subscription or consumer group under which the broker keeps the progress; `group` is an alias."""

    @property
    def divides(self) -> bool:
        """True if brokers divide the records among the consumers of one name."""
        return True


def refuse_time(path: KeyPath, table: Mapping[str, Any], tell: Tell, why: str) -> None:
    """Report a time as ``start`` or ``end`` of a system whose brokers find no record by its time; ``why`` says so."""
    for key, parse in (("start", parse_start), ("end", parse_end)):
        value = table.get(key)
        if value is None or isinstance(value, Mapping):
            continue
        try:
            place = parse(value)
        except ValueError:
            continue  # the model reports it
        if place.time is not None:
            tell((*path, key), why)


def source_model(system: str) -> type[SourceConfig]:
    """Return the model of a system's sources."""
    return model_of(system, "SOURCE", SourceConfig)


def _by_url(value: Any, handler: ValidatorFunctionWrapHandler) -> SourceConfig:
    """Validate a table with the model of the system of its URL."""
    if not isinstance(value, dict):
        found: SourceConfig = handler(value)
        return found
    grammar = grammar_of(value.get("url", ""))
    if grammar is None and isinstance(value.get("start"), dict):
        value = value | {"start": "earliest"}  # positions of an unknown system cannot be parsed
    return model_for(value, source_model).model_validate(value, context={"grammar": grammar})


def _connection_by_url(value: Any, handler: ValidatorFunctionWrapHandler) -> Connection | None:
    """Validate a table with the model of connections of the system of its URL."""
    if not isinstance(value, dict):
        found: Connection | None = handler(value)
        return found
    grammar = grammar_of(value.get("url", ""))
    return model_for(value, connection_model).model_validate(value, context={"grammar": grammar})


ConnectionField = Annotated[SerializeAsAny[Connection], WrapValidator(_connection_by_url)]
SourceField = Annotated[SerializeAsAny[SourceConfig], WrapValidator(_by_url)]
