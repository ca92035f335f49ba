"""What a configuration has to know of each message system: how its addresses, topics and positions are written."""

from collections.abc import Callable
from dataclasses import dataclass

from fastwire.kafka import names as kafka
from fastwire.pulsar import namespace
from fastwire.pulsar import topic as pulsar

__all__ = ["SYSTEMS", "SourceUrl", "System", "TopicPattern", "system_of"]

SourceUrl = pulsar.ServiceUrl | kafka.BootstrapUrl
TopicPattern = namespace.TopicPattern | kafka.TopicPattern


@dataclass(frozen=True, slots=True)
class System:
    """``topic`` returns the full name of a topic, ``place`` that of a partition for ``start`` and the topic it is of.

    ``pattern`` reads what stands for all topics that match. All raise ValueError. ``schemes`` are those of its URLs,
    first without and then with TLS.
    """

    name: str
    schemes: tuple[str, str]
    url: Callable[[str], SourceUrl]
    topic: Callable[[str], str]
    pattern: Callable[[str], TopicPattern]
    place: Callable[[str], tuple[str, str]]
    example: str
    """Of a position in ``start``."""


def _pulsar_topic(text: str) -> str:
    topic = pulsar.parse_topic(text)
    if not topic.persistent:
        raise ValueError(f'"{text}": a non-persistent topic keeps no positions, so nothing can be promised about it')
    return str(topic)


def _pulsar_place(text: str) -> tuple[str, str]:
    name = _pulsar_topic(text)
    return name, str(pulsar.parse_topic(name).base)


def _kafka_place(text: str) -> tuple[str, str]:
    topic, number = kafka.partition_of(text)
    return f"{topic}-{number}", topic


PULSAR = System(
    "pulsar",
    ("pulsar", "pulsar+ssl"),
    pulsar.parse_service_url,
    _pulsar_topic,
    namespace.parse_pattern,
    _pulsar_place,
    '{ "<topic>-partition-0" = "12:34" }',
)
KAFKA = System(
    "kafka",
    ("kafka", "kafka+ssl"),
    kafka.parse_bootstrap_url,
    kafka.parse_topic,
    kafka.parse_pattern,
    _kafka_place,
    '{ "<topic>-0" = "1234" }',
)
SYSTEMS = (PULSAR, KAFKA)


def system_of(url: object) -> System:
    """The system that a URL leads to, by its scheme; that of most users where it cannot be told."""
    scheme = str(url).strip().partition("://")[0].lower()
    return next((system for system in SYSTEMS if scheme in system.schemes), PULSAR)
