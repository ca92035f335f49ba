"""Damaged conversations leave Kafka's state machines sound; a test for each thing that fuzzing has found."""

import pytest

from tests.fuzz.hunt import found, kept
from tests.fuzz.kafka_state import CONVERSATIONS


def test_damaged_conversations() -> None:
    assert CONVERSATIONS.not_reached(150) == set()


@pytest.mark.parametrize("name", found("kafka_steps"))
def test_what_fuzzing_has_found(name: str) -> None:
    CONVERSATIONS.run_case(kept(name))
