"""Mutated GET responses of TubeMQ against the scanner: rows, dead letters, damaged messages or ProtocolError.

    python -m tests.fuzz.tubemq --seconds 600 --seed 1

What was found is a test (``tests/fastwire/tubemq/test_mutation.py``).
"""

import random
import sys
from collections.abc import Iterable, Iterator

from fastwire.tubemq.reading.fetched import Planned
from fastwire.wire.pool import Pool
from tests.fuzz.answers import Answers
from tests.fuzz.tubemq_broker import damaged
from tests.support.tubemq.bed import Bed, message, numbered, response
from tests.support.tubemq.golden import EXAMPLES

ATTRIBUTES = b"$msgType$=aaa,$msgTime$=202601011200,k=v=w,flag,,=e"


def frames(seed: int) -> Iterator[bytes]:
    """Responses of real brokers, and larger ones of ours, changed."""
    sources = [one.frame for one in EXAMPLES if one.entry.get("message") == "GetMessageResponseB2C"]
    sources += [response(numbered(0, 30), 84, block=block) for block in (7, 100, 8192)]
    sources.append(response([message(b"v" * size, ATTRIBUTES) for size in (0, 3, 900)]))
    chance = random.Random(seed).random
    while True:
        yield damaged(sources[int(chance() * len(sources))], chance)


class _Reading(Bed):
    def __init__(self, pool: Pool, on_corrupt: str) -> None:
        super().__init__(pool=pool, on_corrupt=on_corrupt)

    def read(self, data: bytes, cuts: Iterable[int] = ()) -> None:
        """Feed one response to a GET that was planned under each serial number that it may have."""
        self.scanner.plan(int.from_bytes(data[4:8]), Planned(self.index, 1))
        self.feed(data, cuts)
        self.take()


ANSWERS = Answers("tests.fuzz.tubemq", "tubemq", frames, _Reading, place=lambda row: (row["offset"], row["row"]))


if __name__ == "__main__":
    sys.exit(ANSWERS.main(__doc__))
