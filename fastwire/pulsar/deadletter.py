"""Records that nobody can deal with: where they go and what is written on them (pulsar 17)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastwire.pulsar.message_id import MessageId
from fastwire.pulsar.topic import Topic, parse_topic

__all__ = ["DeadLetterPolicy", "dead_letter_properties", "reconsume_times", "retry_properties"]

REAL_TOPIC = "REAL_TOPIC"
ORIGIN_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_ID_JAVA = "ORIGIN_MESSAGE_IDY_TIME"  # spelled like that by the Java and Go clients
RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
RETRY_TOPIC = "RETRY_TOPIC"
_OF_A_RETRY = frozenset({RECONSUME_TIMES, DELAY_TIME, RETRY_TOPIC})

Properties = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPolicy:
    """An entry that was delivered again more than ``most_redeliveries`` times goes to a topic for dead letters.

    ``topic`` and ``retry_topic`` are named after the topic and the subscription where they are not given: one for all
    partitions. ``retry`` also reads the retry topic, which ``retry`` of a chunk needs. ``initial_subscription`` is made
    at a new topic for dead letters, which otherwise keeps nothing until somebody subscribes.
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
        """The full name of the topic for dead letters of ``source``."""
        return self._name(self.topic, source, subscription, "DLQ")

    def again_topic(self, source: Topic, subscription: str) -> str:
        """The full name of the topic for another try with what came from ``source``."""
        return self._name(self.retry_topic, source, subscription, "RETRY")

    @staticmethod
    def _name(given: str, source: Topic, subscription: str, end: str) -> str:
        return str(parse_topic(given)) if given else f"{source.base}-{subscription}-{end}"


def dead_letter_properties(properties: Iterable[tuple[str, str]], real_topic: str, origin: MessageId) -> Properties:
    """The properties of a dead letter: its own, and where it comes from.

    A record that went round by a retry topic keeps the topic and the id that it had in the first place.
    """
    return _with_origin(properties, real_topic, origin)


def retry_properties(
    properties: Iterable[tuple[str, str]], real_topic: str, origin: MessageId, *, retry_topic: str, delay_s: float
) -> Properties:
    """The properties of a record on its way to the retry topic."""
    own = tuple(properties)
    out = [(key, value) for key, value in _with_origin(own, real_topic, origin) if key not in _OF_A_RETRY]
    out.append((RECONSUME_TIMES, str(reconsume_times(own) + 1)))
    out.append((DELAY_TIME, str(max(0, round(delay_s * 1000)))))
    out.append((RETRY_TOPIC, retry_topic))
    return out


def reconsume_times(properties: Iterable[tuple[str, str]]) -> int:
    """How often a record went round by a retry topic; 0 where the property is absent or no number."""
    text = dict(properties).get(RECONSUME_TIMES, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _with_origin(properties: Iterable[tuple[str, str]], real_topic: str, origin: MessageId) -> list[tuple[str, str]]:
    out = list(properties)
    known = dict(out)
    for key, value in ((REAL_TOPIC, real_topic), (ORIGIN_ID, str(origin)), (ORIGIN_ID_JAVA, str(origin))):
        if key not in known:
            out.append((key, value))
    return out
