"""Text forms of Kafka."""

from fastwire.grammar import Grammar, KeyOption, parse_name_pattern, partition_reader

from .names import SCHEMES, parse_bootstrap_url, parse_topic, partition_of
from .position import POSITIONS

GRAMMAR = Grammar(
    name="kafka",
    title="Kafka",
    schemes=SCHEMES,
    more_ports=frozenset({9094}),
    url=parse_bootstrap_url,
    url_example="kafka://127.0.0.1:9092",
    topic=parse_topic,
    topic_example="orders",
    pattern=parse_name_pattern,
    pattern_example="orders-.*",
    partition=partition_reader(partition_of, "-"),
    topic_is_partition=False,
    group_word="group",
    positions=POSITIONS,
    start_example='{ "<topic>-0" = "1234" }',
    position_help=(
        "OFFSET for every partition (the nearest one that its log holds), or 0=OFFSET,2=-10 for these partitions; "
        "the others start at latest"
    ),
    exactly_once="transactions",
    options=(
        KeyOption(
            "--mechanism",
            "auth.mechanism",
            "SASL mechanism of the user: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 (the default).",
        ),
        KeyOption("--client-id", "client_id", "Client id, for the brokers' logs and quotas."),
        KeyOption(
            "--rack", "rack", "Read from replicas in this rack, if the brokers have a replica selector.", reading=True
        ),
    ),
)
