"""Text forms of TubeMQ."""

from fastwire.grammar import Grammar, parse_name_pattern, partition_reader

from .names import SCHEMES, parse_master_url, parse_topic, partition_of
from .position import POSITIONS

GRAMMAR = Grammar(
    name="tubemq",
    title="TubeMQ",
    schemes=SCHEMES,
    servers="Masters",
    url=parse_master_url,
    url_example="tubemq://127.0.0.1:8715",
    topic=parse_topic,
    topic_example="orders",
    pattern=parse_name_pattern,
    pattern_example="orders-.*",
    partition=partition_reader(partition_of, "/"),
    topic_is_partition=False,
    group_word="group",
    positions=POSITIONS,
    start_example='{ "<topic>/1:0" = "84+17" }',
)
