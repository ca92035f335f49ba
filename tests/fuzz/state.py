"""Damaged conversations against the client's state machines: connection, consumer, producer, chunks in the making.

    python -m tests.fuzz.state --seconds 600 --seed 1

A case is a conversation: steps of ours (subscribe, send, acknowledge, lose the connection, wait) and frames of a broker
that answers what it was asked, says other things out of turn, and damages some frames. Whatever it says, a
machine may only go on or raise FastwireError; no request is answered twice, no record has two outcomes or none, no more
is asked for than the window, and nothing is left in the pool. What was found is a test
(``tests/test_pulsar_conversation.py``).
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count

from tests.fuzz.broker import Broker
from tests.fuzz.client import Client
from tests.fuzz.hunt import Case, Subject, main

__all__ = ["REACHED", "cases", "run_block", "run_case"]

BLOCK = 400
STEPS = 80  # of a conversation

# What a case has to get to now and then, or it is not worth its time.
REACHED = (
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
)


def _conversation(seed: int, number: int) -> tuple[Case, Client, Exception | None]:
    """Lead one; its words, and what it came to."""
    chance = random.Random(f"{seed}:{number}").random
    client = Client()
    broker = Broker(client, chance)
    words: Case = []
    try:
        for _ in range(STEPS):
            words.append(broker.word())
            client.step(words[-1])
        client.finish()
    except Exception as exc:  # a finding
        return words, client, exc
    return words, client, None


def cases(seed: int) -> Iterator[Case]:
    return (_conversation(seed, number)[0] for number in count())


def run_block(seed: int, first: int, count: int) -> Counter[str]:
    """Lead conversations ``first`` to ``first + count``; returns how often what was reached."""
    reached: Counter[str] = Counter()
    for number in range(first, first + count):
        _, client, finding = _conversation(seed, number)
        if finding is not None:
            raise finding
        reached += client.reached
    return reached


def run_case(words: Case) -> None:
    """Lead a conversation by its words."""
    client = Client()
    for word in words:
        client.step(word)
    client.finish()


def _block(seed: int, first: int, count: int) -> None:
    run_block(seed, first, count)


if __name__ == "__main__":
    sys.exit(main(Subject("tests.fuzz.state", "steps", BLOCK, _block, cases, run_case), __doc__))
