"""Damaged conversations against TubeMQ's state machines: connection, scanner, slots, members, and a producer.

    python -m tests.fuzz.tubemq_state --seconds 600 --seed 1

A case is a conversation, as in ``tests.fuzz.state``. Whatever a Master or a Broker says, a machine may only go on or
raise FastwireError; no request is answered twice, no event has two results, spans follow one upon the other and hold
their rows, no message has two outcomes or none, and nothing is left in the pool. What was found is a test
(``tests/fastwire/tubemq/test_conversation.py``).
"""

import sys

from tests.fuzz.conversation import Conversations
from tests.fuzz.tubemq_broker import Broker
from tests.fuzz.tubemq_client import Client

CONVERSATIONS = Conversations(
    "tests.fuzz.tubemq_state",
    "tubemq_steps",
    150,
    Client,
    Broker,
    (
        "broken",
        "reply",
        "refused",
        "timed out",
        "fetched",
        "moved",
        "replaced",
        "at end",
        "rows",
        "dead letters",
        "event",
        "share",
        "for good",
        "stored",
        "not stored",
    ),
)


if __name__ == "__main__":
    sys.exit(CONVERSATIONS.main(__doc__))
