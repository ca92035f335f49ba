"""Topic names, partition names and bootstrap URLs of Kafka."""

import re

from fastwire.address import HostsUrl, parse_hosts_url

SCHEMES = {"kafka": 9092, "kafka+ssl": 9093}  # the default port of each

TopicPartition = tuple[str, int]
TopicIdPartition = tuple[bytes, int]  # the topic by its UUID

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"(.+)-(0|[1-9][0-9]*)")


def parse_bootstrap_url(text: str) -> HostsUrl:
    """Parse ``kafka://host[:port][,host…]`` or ``kafka+ssl://…``, the bootstrap servers.

    Raises ValueError as ``parse_hosts_url``.
    """
    return parse_hosts_url(text, SCHEMES)


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
