"""Damaged conversations against Kafka's state machines: connection, fetcher, members of both protocols, producer.

    python -m tests.fuzz.kafka_state --seconds 600 --seed 1

A case is a conversation, as in ``tests.fuzz.state``. Whatever the broker says, a machine may only go on or raise
FastwireError; no request is answered twice, spans follow one upon the other and hold their rows, no record has two
outcomes or none, and nothing is left in the pool. What was found is a test
(``tests/fastwire/kafka/test_conversation.py``).
"""

import sys

from tests.fuzz.conversation import Conversations
from tests.fuzz.kafka_broker import Broker
from tests.fuzz.kafka_client import Client

CONVERSATIONS = Conversations(
    "tests.fuzz.kafka_state",
    "kafka_steps",
    120,
    Client,
    Broker,
    (
        "connected",
        "login again",
        "raw tokens",
        "broken",
        "reply",
        "refusal",
        "timed out",
        "fetched",
        "session",
        "rows",
        "dead letters",
        "partition error",
        "assigned classic",
        "assigned consumer",
        "leads",
        "taken away",
        "elsewhere",
        "stored",
        "not stored",
    ),
)


if __name__ == "__main__":
    sys.exit(CONVERSATIONS.main(__doc__))
