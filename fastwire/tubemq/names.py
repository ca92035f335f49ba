"""Topic names, partition names and Master URLs of TubeMQ."""

import re

from fastwire.address import HostsUrl, parse_hosts_url

SCHEMES = {"tubemq": 8715, "tubemq+ssl": 8716}  # the default port of each

# Separators of the text forms cannot be part of a name (spec: tubemq 7, 8).
_TOPIC = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_PARTITION = re.compile(r"(.+)/((?:0|[1-9][0-9]{0,9}):(?:0|[1-9][0-9]{0,9}))")


def parse_master_url(text: str) -> HostsUrl:
    """Parse ``tubemq://host[:port][,host…]`` or ``tubemq+ssl://…``, the Masters.

    Raises ValueError as ``parse_hosts_url``.
    """
    return parse_hosts_url(text, SCHEMES)


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
