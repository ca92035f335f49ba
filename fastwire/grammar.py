"""Text forms of a message system: addresses of brokers, topics, partitions and positions.

Each system defines one :class:`Grammar` in its own package; ``fastwire.systems`` lists them.
"""

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .position import Positions


class BrokerUrl(Protocol):
    """The address of a cluster, as a user gives it. Its text is the URL."""

    @property
    def tls(self) -> bool:
        """True if connections use TLS."""

    @property
    def hosts(self) -> str:
        """The host list without a scheme, the default name of the cluster."""


class TopicPattern(Protocol):
    """A regular expression that stands for all topics whose names it matches. Its text is the expression."""

    def chosen(self, names: Iterable[str]) -> Collection[object]:
        """Return the topics among full names that match; their texts are the names."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Topics whose whole name a regular expression matches."""

    text: str
    _matcher: re.Pattern[str] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def matches(self, topic: str) -> bool:
        """Return whether ``topic`` matches as a whole."""
        return self._matcher.fullmatch(topic) is not None

    def chosen(self, names: Iterable[str]) -> set[str]:
        """Return the topics that match."""
        return {name for name in names if self.matches(name)}


def parse_name_pattern(text: str) -> NamePattern:
    """Parse a regular expression for whole topic names. Raises ValueError with the reason if it is invalid."""
    if not text:
        raise ValueError('is empty; ".*" means all topics')
    try:
        return NamePattern(text, compile_pattern(text))
    except ValueError as exc:
        raise ValueError(f'"{text}": {exc}') from None


def compile_pattern(text: str) -> re.Pattern[str]:
    """Return ``text`` compiled. Raises ValueError with the reason if it is invalid, or would mean something else later.

    A ``[`` within a set is one of these: other systems nest sets, and Python only warns that it may.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        try:
            return re.compile(text)
        except (re.error, FutureWarning) as exc:
            raise ValueError(f"not a regular expression: {exc}") from None


@dataclass(frozen=True, slots=True)
class KeyOption:
    """An option of the commands that stands for a key of a connection."""

    name: str
    """With its dashes, for example ``--client-id``."""
    key: str
    """The dotted name of the key in a configuration file."""
    help: str
    form: Literal["text", "file", "NAME=FILE"] = "text"
    """``NAME=FILE`` may be repeated: the key is a table of files by name."""
    choices: tuple[str, ...] = ()
    """The values that it takes; any value if this is empty."""
    reading: bool = False
    """True if only commands that read records have the option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Text forms of one message system. All functions raise ValueError with a message for the author of the text."""

    name: str
    """The name in durable state, in configuration files and on the command line, for example ``kafka``."""
    title: str
    """The name in messages, for example ``Kafka``."""
    schemes: Mapping[str, int]
    """The schemes of its URLs with their default ports: the first one is for plain text, a second one for TLS."""
    servers: str = "brokers"
    """What listens at the ports of its URLs."""
    more_ports: frozenset[int] = frozenset()
    """Ports on which brokers of the system usually listen as well."""
    exactly_once: Literal["", "transactions", "deduplication"] = ""
    """The means by which its topics can be written exactly once; "" if there are none."""
    url: Callable[[str], BrokerUrl]
    """Read the address of a cluster."""
    url_example: str
    mistaken_schemes: frozenset[str] = frozenset()
    """Schemes that users of the system write by mistake: ``url`` answers them with advice."""
    topic: Callable[[str], str]
    """Return the full name of a topic whose records have positions."""
    topic_example: str
    pattern: Callable[[str], TopicPattern]
    """Read a pattern of topics."""
    pattern_example: str = ""
    """A pattern of topics; empty if the system has none."""
    partition: Callable[[str], tuple[str, str]]
    """Return the full name of a partition, or of a topic without partitions, and the full name of its topic."""
    topic_is_partition: bool
    """True if the name of a partition is also the name of a topic."""
    positions: Positions
    start_example: str
    """Positions of partitions in the key ``start``, in the syntax of a configuration file."""
    position_help: str = ""
    """The forms of positions in the option ``--from`` of the command ``tail``; empty if it takes none."""
    group_word: str = ""
    """The system's term for the name under which a broker keeps the progress of consumers: subscription or group.

    Empty if the brokers keep none: then the dataset is the only cursor.
    """
    keeps_schemas: bool = False
    """True if brokers keep the schemas of records, whose version is the column ``schemaVersion``."""
    options: tuple[KeyOption, ...] = ()
    """The options of commands for keys of connections that only some systems have."""

    @property
    def usual_ports(self) -> frozenset[int]:
        """All ports on which brokers of the system usually listen."""
        return frozenset(self.schemes.values()) | self.more_ports


def partition_reader(split: Callable[[str], tuple[str, object]], mark: str) -> Callable[[str], tuple[str, str]]:
    """Return the function ``Grammar.partition`` of a system whose partitions are named TOPIC ``mark`` PARTITION.

    ``split`` returns topic and partition of such a name, and raises ValueError.
    """

    def read(text: str) -> tuple[str, str]:
        topic, partition = split(text)
        return f"{topic}{mark}{partition}", topic

    return read
