"""Mutated messages of drawn types for the walker of Protobuf, each read as google.protobuf reads it.

It runs in the build with the sanitizers, and a column ends where its last message does: a read beyond it is seen.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastwire.wire.pool import Pool
from tests.fuzz.drawn import case_of, drawn, numbers_of, parted, spoilt
from tests.fuzz.hunt import Case, Subject, counting, main
from tests.fuzz.json_values import column
from tests.support.protobuf import agree, messages

BLOCK = 2000
MOST_MEMORY = 32 << 20
_PIECES = (
    b"\x00", b"\x01", b"\x07", b"\x08", b"\x0b", b"\x0c", b"\x0e", b"\x7f", b"\x80", b"\xff", b"\x0a\x00", b"\x12\x02",
    b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 9 + b"\x00", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f",
    b"\x0b" * 101, b"\x0b" * 40 + b"\x0c" * 40, b"\xe2\x82", b"\xed\xa0\x80", b"\x0a\x0a" * 40,
)  # fmt: skip


def _messages() -> Any:
    return messages(cut=False)


def cases(seed: int) -> Iterator[Case]:
    """The bytes of changed messages of a seed, without end."""
    for number, chance in numbers_of(seed):
        _, sound = drawn(_messages, number)
        wholes = [each.SerializeToString() for each in sound]
        yield case_of(number, spoilt(chance.choice(wholes) + chance.choice(wholes), chance, [*_PIECES, *wholes]))


def run_case(words: Case) -> Counter[str]:
    """Decode one message between two sound ones, and at the end of a column."""
    number, data = parted(words)
    made, sound = drawn(_messages, number)
    neighbour = sound[0].SerializeToString()
    pool = Pool(1 << 28)
    between = agree(made, column([neighbour, data, neighbour]), pool)
    alone = agree(made, column([data]), pool)
    assert between["row"] == alone["row"] + 2, (between, alone)
    assert pool.peak <= MOST_MEMORY, f"{pool.peak} bytes were out at once"
    return alone


run_block = counting(cases, run_case)
"""Run so many cases of a seed from one on; returns how often what came of them."""


SUBJECT = Subject("tests.fuzz.protobuf_values", "protobuf", BLOCK, run_block, cases, run_case)


if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
