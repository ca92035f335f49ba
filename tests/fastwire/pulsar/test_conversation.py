"""Damaged conversations leave the client's state machines sound; what fuzzing has found of them."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.state import CONVERSATIONS


def test_damaged_conversations() -> None:
    assert CONVERSATIONS.not_reached(150) == set()


@pytest.mark.parametrize("name", found("steps"))
def test_what_fuzzing_has_found(name: str) -> None:
    CONVERSATIONS.run_case(kept(name))
