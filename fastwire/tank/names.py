"""Topic names, partition names and broker URLs of TANK."""

import re
from dataclasses import dataclass

from fastwire.address import format_host, parse_hosts

__all__ = ["SCHEMES", "TankUrl", "parse_tank_url", "parse_topic", "partition_of"]

SCHEMES = {"tank": 11011}  # the default port; the protocol has no TLS (spec: tank 1)

MOST_NAME = 64

_TOPIC = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")
_PARTITION = re.compile(r"([^/]+)/(0|[1-9][0-9]{0,4})")


@dataclass(frozen=True, slots=True)
class TankUrl:
    """The brokers of a cluster in the given order."""

    addresses: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"tank://{self.hosts}"

    @property
    def tls(self) -> bool:
        """False: the protocol has no TLS."""
        return False

    @property
    def hosts(self) -> str:
        """The host list without a scheme, the default name of the cluster."""
        return ",".join(format_host(host, port) for host, port in self.addresses)


def parse_tank_url(text: str) -> TankUrl:
    """Parse ``tank://host[:port][,host…]``.

    Raises ValueError with a message for the author of the URL, which never repeats a possible password.
    """
    scheme, mark, rest = text.strip().partition("://")
    if not mark or scheme.lower() not in SCHEMES:
        raise ValueError('must be a URL such as "tank://127.0.0.1:11011"')
    if "@" in rest:
        raise ValueError("user and password do not belong in the URL: a TANK broker has no authentication")
    return TankUrl(parse_hosts(rest.partition("/")[0], SCHEMES["tank"]))


def parse_topic(text: str) -> str:
    """Return the topic name of ``text`` (spec: tank 10). Raises ValueError with the reason if it is invalid."""
    if not _TOPIC.fullmatch(text):
        raise ValueError(
            f"topic {text!r}: a name has up to {MOST_NAME} letters, digits, - and _, and neither begins nor ends "
            "with - or _"
        )
    return text


def partition_of(text: str) -> tuple[str, int]:
    """Split ``TOPIC/NUMBER`` into topic and partition number. Raises ValueError with the reason."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} names no partition: TOPIC/NUMBER")
    return parse_topic(match[1]), int(match[2])
