"""Damaged conversations leave TubeMQ's state machines sound; a test for each thing that fuzzing has found."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.tubemq_state import CONVERSATIONS


def test_damaged_conversations() -> None:
    assert CONVERSATIONS.not_reached(300) == set()


@pytest.mark.parametrize("name", found("tubemq_steps"))
def test_what_fuzzing_has_found(name: str) -> None:
    CONVERSATIONS.run_case(kept(name))
