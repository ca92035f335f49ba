"""Text forms of the toy system."""

import re
from dataclasses import dataclass

from fastwire.address import format_host, parse_host
from fastwire.grammar import Grammar, TopicPattern

from .position import POSITIONS

__all__ = ["GRAMMAR", "PORT", "ToyUrl"]

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


def _url(text: str) -> ToyUrl:
    scheme, _, rest = text.strip().partition("://")
    if scheme.lower() != "toy":
        raise ValueError('must be a URL such as "toy://127.0.0.1:7070"')
    return ToyUrl(*parse_host(rest.partition("/")[0], PORT))


def _topic(text: str) -> str:
    if not _TOPIC.fullmatch(text):
        raise ValueError(f"topic {text!r}: a name has up to 100 letters, digits and _ only")
    return text


def _pattern(text: str) -> TopicPattern:
    raise ValueError(f"{text!r}: the toy system has no patterns of topics")


def _partition(text: str) -> tuple[str, str]:
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a partition, such as orders/0")
    return f"{_topic(match[1])}/{match[2]}", match[1]


GRAMMAR = Grammar(
    name="toy",
    title="Toy",
    schemes={"toy": PORT},
    url=_url,
    url_example="toy://127.0.0.1:7070",
    topic=_topic,
    topic_example="orders",
    pattern=_pattern,
    partition=_partition,
    topic_is_partition=False,
    positions=POSITIONS,
    start_example='{ "<topic>/0" = "1234" }',
)
