"""Mutated JSON leaves the decoder sound; a test for each thing that fuzzing has found."""

import pytest

from fastwire.decode.json.walk import REASONS
from tests.fuzz.hunt import found, kept
from tests.fuzz.json_values import run_block, run_case


def test_mutated_texts() -> None:
    reached = run_block(0, 0, 3000)
    assert set(reached) == {"row", *REASONS} - {"NoValue", "TooLarge", "NewColumns"}, reached


@pytest.mark.parametrize("name", found("json"))
def test_what_fuzzing_has_found(name: str) -> None:
    run_case(kept(name))
