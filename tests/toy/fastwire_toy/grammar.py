"""Text forms of the toy system."""

import re

from fastwire.address import HostsUrl, parse_hosts_url
from fastwire.grammar import Grammar, TopicPattern

from .position import POSITIONS

PORT = 7070
SCHEMES = {"toy": PORT}
_TOPIC = re.compile(r"[A-Za-z0-9_]{1,100}")
_PARTITION = re.compile(r"(.+)/(0|[1-9][0-9]{0,8})")


def _url(text: str) -> HostsUrl:
    url = parse_hosts_url(text, SCHEMES)
    if len(url.addresses) > 1:
        raise ValueError(f'"{url.hosts}": there is one broker only')
    return url


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
    schemes=SCHEMES,
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
