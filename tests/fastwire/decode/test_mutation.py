"""Mutated values of drawn schemas leave the decoders sound; a test for each thing that fuzzing has found."""

import pytest

from tests.fuzz import json_loose, protobuf_values
from tests.fuzz.hunt import found, kept


def test_mutated_messages() -> None:
    reached = protobuf_values.run_block(0, 0, 300)
    assert {"row", "Truncated", "InvalidTag", "InvalidVarint", "InvalidUtf8"} <= set(reached), reached


def test_mutated_texts_as_spark_reads_them() -> None:
    reached = json_loose.run_block(0, 0, 600)
    assert {"row", "Truncated", "InvalidJson", "WrongType", "InvalidUtf8", "MissingField"} <= set(reached), reached


@pytest.mark.parametrize("name", found("protobuf"))
def test_messages_that_fuzzing_has_found(name: str) -> None:
    protobuf_values.run_case(kept(name))


@pytest.mark.parametrize("name", found("loose"))
def test_texts_that_fuzzing_has_found(name: str) -> None:
    json_loose.run_case(kept(name))
