"""Mutated GET responses leave TubeMQ's scanner sound; a test for each thing that fuzzing has found."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.tubemq import ANSWERS


def test_mutated_answers() -> None:
    reached = ANSWERS.run_block(0, 0, 1500)
    assert min(reached[each] for each in ("protocol error", "rows", "dead letters", "damaged batches")) > 20, reached


@pytest.mark.parametrize("name", found("tubemq"))
def test_what_fuzzing_has_found(name: str) -> None:
    ANSWERS.run_case(kept(name))
