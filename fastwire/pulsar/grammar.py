"""Text forms of Pulsar."""

from fastwire.grammar import Grammar, KeyOption

from .names.pattern import parse_pattern
from .names.topic import SCHEMES, parse_service_url, parse_topic
from .position import POSITIONS


def _topic(text: str) -> str:
    topic = parse_topic(text)
    if not topic.persistent:
        raise ValueError(f'"{text}": a non-persistent topic keeps no positions, so nothing can be promised about it')
    return str(topic)


def _partition(text: str) -> tuple[str, str]:
    name = _topic(text)
    return name, str(parse_topic(name).base)


GRAMMAR = Grammar(
    name="pulsar",
    title="Pulsar",
    schemes=SCHEMES,
    url=parse_service_url,
    url_example="pulsar://127.0.0.1:6650",
    mistaken_schemes=frozenset({"http", "https"}),
    topic=_topic,
    topic_example="persistent://public/default/orders",
    pattern=parse_pattern,
    pattern_example="persistent://public/default/orders-.*",
    partition=_partition,
    topic_is_partition=True,
    group_word="subscription",
    positions=POSITIONS,
    start_example='{ "<topic>-partition-0" = "12:34" }',
    position_help="LEDGER:ENTRY, for one partition (TOPIC-partition-0); -10 counts entries of the newest ledger",
    keeps_schemas=True,
    exactly_once="deduplication",
    options=(
        KeyOption(
            "--private-key",
            "encryption.private_keys",
            "A private key (PEM) for encrypted records.",
            form="NAME=FILE",
            reading=True,
        ),
        KeyOption(
            "--on-undecryptable",
            "encryption.on_failure",
            "Reaction to a record that no key decrypts: stop (the default), skip it, or show its ciphertext.",
            choices=("fail", "discard", "consume"),
            reading=True,
        ),
    ),
)
