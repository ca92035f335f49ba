"""Topic names, partition names and broker URLs of TANK."""

import re

from fastwire.address import HostsUrl, parse_hosts_url

SCHEMES = {"tank": 11011}  # the default port; the protocol has no TLS (spec: tank 1)

MOST_NAME = 64

_TOPIC = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")
_PARTITION = re.compile(r"([^/]+)/(0|[1-9][0-9]{0,4})")


def parse_tank_url(text: str) -> HostsUrl:
    """Parse ``tank://host[:port][,host…]``, the brokers. Raises ValueError as ``parse_hosts_url``."""
    if "@" in text:
        raise ValueError("user and password do not belong in the URL: a TANK broker has no authentication")
    return parse_hosts_url(text, SCHEMES)


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
