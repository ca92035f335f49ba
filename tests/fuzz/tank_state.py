"""Damaged conversations against TANK's state machines: connection, scanner, slots, a producer that numbers messages.

    python -m tests.fuzz.tank_state --seconds 600 --seed 1

A case is a conversation, as in ``tests.fuzz.state``. Whatever the broker says, a machine may only go on or raise
FastwireError; no request is answered twice, spans follow one upon the other and hold their rows, no message has two
outcomes or none, and nothing is left in the pool. What was found is a test
(``tests/fastwire/tank/test_conversation.py``).
"""

import sys

from tests.fuzz.conversation import Conversations
from tests.fuzz.tank_broker import Broker
from tests.fuzz.tank_client import Client

CONVERSATIONS = Conversations(
    "tests.fuzz.tank_state",
    "tank_steps",
    120,
    Client,
    Broker,
    (
        "connected",
        "broken",
        "reply",
        "timed out",
        "fetched",
        "rows",
        "dead letters",
        "corrupt",
        "cut off",
        "stuck",
        "status OK",
        "status OK_SPARSE",
        "status BOUNDARY",
        "status REDIRECT",
        "status UNKNOWN_TOPIC",
        "stored",
        "not stored",
    ),
)


if __name__ == "__main__":
    sys.exit(CONVERSATIONS.main(__doc__))
