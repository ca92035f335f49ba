"""Topic names, partition names and bootstrap URLs of Kafka."""

import re
from dataclasses import dataclass

from fastwire.address import format_host, parse_hosts

__all__ = [
    "SCHEMES",
    "BootstrapUrl",
    "parse_bootstrap_url",
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


def parse_bootstrap_url(text: str) -> BootstrapUrl:
    """Parse ``kafka://host[:port][,host…]`` or ``kafka+ssl://…``.

    Raises ValueError with a message for the author of the URL, which never repeats a possible password.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        raise ValueError('must be a URL such as "kafka://127.0.0.1:9092"')
    return BootstrapUrl(scheme == "kafka+ssl", parse_hosts(rest.partition("/")[0], SCHEMES[scheme]))


def parse_topic(text: str) -> str:
    """Return the topic name of ``text``. Raises ValueError with the reason if it is invalid."""
    if text in (".", "..") or not _TOPIC.fullmatch(text):
        raise ValueError(f"topic {text!r}: a name has up to 249 letters, digits and . _ - only")
    return text


def partition_of(text: str) -> tuple[str, int]:
    """Split ``TOPIC-NUMBER``, the form of Kafka's tools, into topic and partition number."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} names no partition: TOPIC-NUMBER")
    return parse_topic(match[1]), int(match[2])
