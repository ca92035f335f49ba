"""Damaged conversations against the client's state machines: connection, consumer, producer, chunks in the making.

    python -m tests.fuzz.state --seconds 600 --seed 1

A case is a conversation: steps of ours (subscribe, send, acknowledge, lose the connection, wait) and frames of a broker
that answers what it was asked, says other things out of turn, and damages some frames. Whatever it says, a
machine may only go on or raise FastwireError; no request is answered twice, no record has two outcomes or none, no more
is asked for than the window, and nothing is left in the pool. What was found is a test
(``tests/fastwire/pulsar/test_conversation.py``).
"""

import sys

from tests.fuzz.broker import Broker
from tests.fuzz.client import Client
from tests.fuzz.conversation import Conversations

CONVERSATIONS = Conversations(
    "tests.fuzz.state",
    "steps",
    80,
    Client,
    Broker,
    (
        "connected",
        "refused connection",
        "broken",
        "reply",
        "refusal",
        "timed out",
        "rows",
        "rejected",
        "closed consumer",
        "closed producer",
        "migrated",
        "topics",
        "stored",
        "not stored",
        "challenged",
    ),
)


if __name__ == "__main__":
    sys.exit(CONVERSATIONS.main(__doc__))
