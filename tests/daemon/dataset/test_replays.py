"""Ranges of dead letters, against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fastwire_daemon.dataset.commitlog.entry import Replayed
from fastwire_daemon.dataset.deadletters.intents import DeadLetterRanges

NUMBERS = st.integers(0, 12)
RANGES = st.builds(lambda entry, one, other: Replayed(entry, min(one, other), max(one, other)),
                   st.integers(1, 2), NUMBERS, NUMBERS)  # fmt: skip


def dead_letters(each: Replayed) -> set[tuple[int, int]]:
    return {(each.entry, number) for number in range(each.first, each.last + 1)}


@given(st.lists(st.tuples(st.booleans(), RANGES), max_size=12), RANGES)
def test_ranges_are_a_set(steps: list[tuple[bool, Replayed]], asked: Replayed) -> None:
    ranges, model = DeadLetterRanges(), set[tuple[int, int]]()
    for added, each in steps:
        if added:
            ranges.add([each])
            model |= dead_letters(each)
        else:
            ranges.remove([each])
            model -= dead_letters(each)
        assert ranges.meets(*asked) == bool(model & dead_letters(asked))
    for known in ranges._of.values():
        assert all(one[0] <= one[1] for one in known)
        assert all(one[1] + 1 < other[0] for one, other in pairwise(known))
