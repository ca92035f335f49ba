"""Damaged conversations leave the client's state machines sound; what fuzzing has found of them."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.state import REACHED, run_block, run_case


def test_damaged_conversations() -> None:
    reached = run_block(0, 0, 150)
    assert not [what for what in REACHED if not reached[what]], reached


@pytest.mark.parametrize("name", found("steps"))
def test_what_fuzzing_has_found(name: str) -> None:
    run_case(kept(name))
