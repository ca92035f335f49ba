"""Mutated consume answers of TANK against the scanner: rows, dead letters, detached partitions or ProtocolError.

    python -m tests.fuzz.tank --seconds 600 --seed 1

What was found is a test (``tests/fastwire/tank/test_mutation.py``).
"""

import random
import sys
from collections.abc import Iterator

from tests.fuzz.answers import Answers
from tests.fuzz.tank_broker import damaged
from tests.support.tank.golden import Reading, asked_by, described, names, response

MOST_BYTES = 8192
_NAMES = [name for name in names("consume") if len(response(name)) <= MOST_BYTES]
# A case is the bytes of an answer alone: each scanner reads all partitions of the vectors.
_ASKED = {place: sequence for name in _NAMES for place, sequence in asked_by(described(name)).items()}


def frames(seed: int) -> Iterator[bytes]:
    """Answers of real brokers, changed."""
    sources = [response(name) for name in _NAMES]
    chance = random.Random(seed).random
    while True:
        yield damaged(sources[int(chance() * len(sources))], chance)


ANSWERS = Answers(
    "tests.fuzz.tank", "tank", frames, lambda pool, on_corrupt: Reading(_ASKED, pool=pool, on_corrupt=on_corrupt)
)


if __name__ == "__main__":
    sys.exit(ANSWERS.main(__doc__))
