"""Text forms of TANK."""

from fastwire.grammar import Grammar, KeyOption, parse_name_pattern, partition_reader

from .names import SCHEMES, parse_tank_url, parse_topic, partition_of
from .position import POSITIONS

GRAMMAR = Grammar(
    name="tank",
    title="TANK",
    schemes=SCHEMES,
    url=parse_tank_url,
    url_example="tank://127.0.0.1:11011",
    topic=parse_topic,
    topic_example="orders",
    pattern=parse_name_pattern,
    pattern_example="orders-.*",
    partition=partition_reader(partition_of, "/"),
    topic_is_partition=False,
    positions=POSITIONS,
    start_example='{ "<topic>/0" = "1234" }',
    position_help=(
        "SEQUENCE for every partition (the nearest one that its log holds), or 0=SEQUENCE,2=-10 for these "
        "partitions; the others start at latest"
    ),
    options=(KeyOption("--client-id", "client_id", "Client id, for the brokers' logs and quotas."),),
)
