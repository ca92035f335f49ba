"""Text forms of the toy system."""

import re
from dataclasses import dataclass

from fastwire.address import format_host, parse_host
from fastwire.grammar import Grammar

from .position import POSITIONS

__all__ = ["GRAMMAR", "ToyPattern", "ToyUrl"]

PORT = 7070
_TOPIC = re.compile(r"[A-Za-z0-9_]{1,100}")
_PARTITION = re.compile(r"(.+)/(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class ToyUrl:
    """The address of the only broker."""

    host: str
    port: int
    tls = False

    def __str__(self) -> str:
        return f"toy://{self.hosts}"

    @property
    def hosts(self) -> str:
        """The address without the scheme."""
        return format_host(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ToyPattern:
    """A regular expression over the names of topics."""

    text: str

    def __str__(self) -> str:
        return self.text


def parse_url(text: str) -> ToyUrl:
    """Read ``toy://host[:port]``."""
    scheme, mark, rest = text.strip().partition("://")
    if scheme.lower() != "toy" or not mark:
        raise ValueError('must be a URL such as "toy://127.0.0.1:7070"')
    return ToyUrl(*parse_host(rest.partition("/")[0], PORT))


def parse_topic(text: str) -> str:
    """Return the name of a topic."""
    if not _TOPIC.fullmatch(text):
        raise ValueError(f"topic {text!r}: a name has up to 100 letters, digits and _ only")
    return text


def parse_pattern(text: str) -> ToyPattern:
    """Read a pattern of topics."""
    raise ValueError(f"{text!r}: the toy system has no patterns of topics")


def parse_partition(text: str) -> tuple[str, str]:
    """Return the name of a partition and of its topic."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a partition, such as orders/0")
    return f"{parse_topic(match[1])}/{match[2]}", match[1]


GRAMMAR = Grammar(
    name="toy",
    title="Toy",
    schemes={"toy": PORT},
    url=parse_url,
    url_example="toy://127.0.0.1:7070",
    topic=parse_topic,
    topic_example="orders",
    pattern=parse_pattern,
    partition=parse_partition,
    topic_is_partition=False,
    positions=POSITIONS,
    start_example='{ "<topic>/0" = "1234" }',
)
