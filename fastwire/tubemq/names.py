"""Topic names, partition names and Master URLs of TubeMQ."""

import re
from dataclasses import dataclass

from fastwire.address import format_host, parse_hosts

__all__ = ["SCHEMES", "MasterUrl", "parse_master_url", "parse_topic", "partition_of"]

SCHEMES = {"tubemq": 8715, "tubemq+ssl": 8716}  # the default port of each

# Separators of the text forms cannot be part of a name (spec: tubemq 7, 8).
_TOPIC = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_PARTITION = re.compile(r"(.+)/((?:0|[1-9][0-9]{0,9}):(?:0|[1-9][0-9]{0,9}))")


@dataclass(frozen=True, slots=True)
class MasterUrl:
    """The Masters of a cluster in the given order, all with TLS or all without."""

    tls: bool
    addresses: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"tubemq{'+ssl' if self.tls else ''}://{self.hosts}"

    @property
    def hosts(self) -> str:
        """The host list without a scheme, the default name of the cluster."""
        return ",".join(format_host(host, port) for host, port in self.addresses)


def parse_master_url(text: str) -> MasterUrl:
    """Parse ``tubemq://host[:port][,host…]`` or ``tubemq+ssl://…``.

    Raises ValueError with a message for the author of the URL, which never repeats a possible password.
    """
    scheme, mark, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in SCHEMES:
        raise ValueError('must be a URL such as "tubemq://127.0.0.1:8715"')
    return MasterUrl(scheme == "tubemq+ssl", parse_hosts(rest.partition("/")[0], SCHEMES[scheme]))


def parse_topic(text: str) -> str:
    """Return the topic name of ``text``. Raises ValueError with the reason if it is invalid."""
    if not _TOPIC.fullmatch(text):
        raise ValueError(f"topic {text!r}: a name is a letter and up to 63 letters, digits and . _ -")
    return text


def partition_of(text: str) -> tuple[str, str]:
    """Split ``TOPIC/BROKER:NUMBER`` into topic and partition. Raises ValueError with the reason."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} names no partition: TOPIC/BROKER:NUMBER")
    return parse_topic(match[1]), match[2]
