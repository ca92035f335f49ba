"""Text forms of TubeMQ."""

from fastwire.grammar import Grammar, parse_name_pattern

from .names import SCHEMES, parse_master_url, parse_topic, partition_of
from .position import POSITIONS

__all__ = ["GRAMMAR"]


def _partition(text: str) -> tuple[str, str]:
    topic, partition = partition_of(text)
    return f"{topic}/{partition}", topic


GRAMMAR = Grammar(
    name="tubemq",
    title="TubeMQ",
    schemes=SCHEMES,
    url=parse_master_url,
    url_example="tubemq://127.0.0.1:8715",
    topic=parse_topic,
    topic_example="orders",
    pattern=parse_name_pattern,
    pattern_example="orders-.*",
    partition=_partition,
    topic_is_partition=False,
    positions=POSITIONS,
    start_example='{ "<topic>/1:0" = "84+17" }',
)
