"""Logs of Kafka with damage in and outside of checksums, read by answers that end anywhere: nothing is lost in silence.

    python -m tests.fuzz.kafka_log --seconds 600 --seed 1

A case is the number of a log, which it is drawn from (``tests.support.kafka.damaged_log``), and ``grows`` for one that
has its last batches only while it is read. What was found is a test
(``tests/fastwire/kafka/test_first_offsets.py``).
"""

import sys
from collections import Counter
from collections.abc import Iterator

from tests.fuzz.hunt import Case, Subject, counting, main
from tests.support.kafka.damaged_log import Drawn, audit

BLOCK = 2000
KINDS = 3  # two places with damage as most, three, and one in a reader that stops at damage


def cases(seed: int) -> Iterator[Case]:
    """Yield the cases of a seed, in order."""
    number = seed * BLOCK
    while True:
        yield [str(number), *(["grows"] if number % 2 else [])]
        number += 1


def run_case(words: Case) -> Counter[str]:
    """Draw a log, read it and compare; return what came of it."""
    number = int(words[0])
    kind = number % KINDS
    drawn = Drawn(number, most_damage=(2, 3, 1)[kind])
    try:
        return audit(drawn, drawn.read(on_corrupt="stop" if kind == 2 else "dead_letter", grows="grows" in words))
    except AssertionError as exc:
        raise AssertionError(f"{exc}; damage {drawn.harmed}") from exc


run_block = counting(cases, run_case)
"""Run so many cases of a seed from one on; returns how often what came of them."""

SUBJECT = Subject("tests.fuzz.kafka_log", "log", BLOCK, run_block, cases, run_case)


if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
