"""Topic names, partition names and bootstrap URLs of Kafka."""

import re
from dataclasses import dataclass, field

from fastwire.address import format_host, parse_host

__all__ = [
    "SCHEMES",
    "BootstrapUrl",
    "TopicPattern",
    "parse_bootstrap_url",
    "parse_pattern",
    "parse_topic",
    "partition_of",
]

SCHEMES = {"kafka": 9092, "kafka+ssl": 9093}  # the default port of each

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class BootstrapUrl:
    """The bootstrap servers in the given order, all with TLS or all without."""

    tls: bool
    addresses: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"kafka{'+ssl' if self.tls else ''}://{self.hosts}"

    @property
    def hosts(self) -> str:
        """The host list without a scheme, the default name of the cluster."""
        return ",".join(format_host(host, port) for host, port in self.addresses)


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """Topics whose whole name a regular expression matches."""

    text: str
    _matcher: re.Pattern[str] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def matches(self, topic: str) -> bool:
        """Return whether ``topic`` matches as a whole."""
        return self._matcher.fullmatch(topic) is not None


def parse_bootstrap_url(text: str) -> BootstrapUrl:
    """Parse ``kafka://host[:port][,host…]`` or ``kafka+ssl://…``.

    Raises ValueError with a message for the author of the URL, which never repeats a possible password.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        raise ValueError('must be a URL such as "kafka://127.0.0.1:9092"')
    rest = rest.partition("/")[0]
    if "@" in rest:
        raise ValueError("user and password do not belong in the URL: put them into auth")
    found = []
    for part in rest.split(","):
        host = parse_host(part.strip(), SCHEMES[scheme])
        if host in found:
            raise ValueError(f'"{format_host(*host)}" stands in the URL twice')
        found.append(host)
    return BootstrapUrl(scheme == "kafka+ssl", tuple(found))


def parse_topic(text: str) -> str:
    """Return the topic name of ``text``. Raises ValueError with the reason if it is invalid."""
    if text in (".", "..") or not _TOPIC.fullmatch(text):
        raise ValueError(f"topic {text!r}: a name has up to 249 letters, digits and . _ - only")
    return text


def parse_pattern(text: str) -> TopicPattern:
    """Parse a regular expression for whole topic names. Raises ValueError with the reason if it is invalid."""
    if not text:
        raise ValueError('is empty; ".*" means all topics')
    try:
        return TopicPattern(text, re.compile(text))
    except re.error as exc:
        raise ValueError(f'"{text}": not a regular expression: {exc}') from None


def partition_of(text: str) -> tuple[str, int]:
    """Split ``TOPIC-NUMBER``, the form of Kafka's tools, into topic and partition number."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} names no partition: TOPIC-NUMBER")
    return parse_topic(match[1]), int(match[2])
