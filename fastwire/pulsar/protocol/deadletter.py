"""Dead letter and retry topics: their names and the properties of the records sent to them (spec: pulsar 17)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastwire.pulsar.names.topic import Topic, parse_topic
from fastwire.pulsar.protocol.message_id import MessageId

REAL_TOPIC = "REAL_TOPIC"
ORIGIN_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_ID_JAVA = "ORIGIN_MESSAGE_IDY_TIME"  # the spelling of the Java and Go clients
RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
RETRY_TOPIC = "RETRY_TOPIC"
_OF_A_RETRY = frozenset({RECONSUME_TIMES, DELAY_TIME, RETRY_TOPIC})

Properties = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """Dead letter policy: an entry that was redelivered more than ``most_redeliveries`` times goes to the dead letter
    topic.

    The default names of ``topic`` and ``retry_topic`` derive from topic and subscription, one for all partitions.
    ``retry`` also reads the retry topic, which ``retry`` of a chunk needs. ``initial_subscription`` is created with a
    new dead letter topic, which otherwise keeps nothing before the first subscription.
    """

    most_redeliveries: int = 16
    topic: str = ""
    retry: bool = False
    retry_topic: str = ""
    initial_subscription: str = ""

    def __post_init__(self) -> None:
        if self.most_redeliveries < 0:
            raise ValueError("most_redeliveries is negative")

    def dead_topic(self, source: Topic, subscription: str) -> str:
        """Return the full name of the dead letter topic of ``source``."""
        return self._name(self.topic, source, subscription, "DLQ")

    def again_topic(self, source: Topic, subscription: str) -> str:
        """Return the full name of the retry topic of ``source``."""
        return self._name(self.retry_topic, source, subscription, "RETRY")

    @staticmethod
    def _name(given: str, source: Topic, subscription: str, end: str) -> str:
        return str(parse_topic(given)) if given else f"{source.base}-{subscription}-{end}"


def dead_letter_properties(properties: Iterable[tuple[str, str]], real_topic: str, origin: MessageId) -> Properties:
    """Return the properties of a dead letter: those of the record, and its origin.

    A record from a retry topic keeps its original topic and id.
    """
    return _with_origin(properties, real_topic, origin)


def retry_properties(
    properties: Iterable[tuple[str, str]], real_topic: str, origin: MessageId, *, retry_topic: str, delay_s: float
) -> Properties:
    """Return the properties of a record for the retry topic."""
    own = tuple(properties)
    out = [(key, value) for key, value in _with_origin(own, real_topic, origin) if key not in _OF_A_RETRY]
    out.append((RECONSUME_TIMES, str(reconsume_times(own) + 1)))
    out.append((DELAY_TIME, str(max(0, round(delay_s * 1000)))))
    out.append((RETRY_TOPIC, retry_topic))
    return out


def reconsume_times(properties: Iterable[tuple[str, str]]) -> int:
    """Return how often a record went through a retry topic; 0 if the property is absent or not a number."""
    text = dict(properties).get(RECONSUME_TIMES, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _with_origin(properties: Iterable[tuple[str, str]], real_topic: str, origin: MessageId) -> list[tuple[str, str]]:
    out = list(properties)
    known = dict(out)
    for key, value in ((REAL_TOPIC, real_topic), (ORIGIN_ID, str(origin)), (ORIGIN_ID_JAVA, str(origin))):
        if key not in known:
            out.append((key, value))
    return out
