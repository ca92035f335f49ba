"""Decoding Protobuf beside google.protobuf: generated messages, every truncation, damage, and hostile sizes."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastwire.decode.program import BadRecord
from fastwire.decode.protobuf import compile_protobuf
from fastwire.decode.protowalk import REASONS, ProtobufDecoder
from fastwire.wire.pool import Pool
from tests.support.protobuf import expected, messages, same, shown

POOL = Pool(256 << 20)
slow = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


def decode(made: Any, values: Sequence[bytes | None]) -> tuple[list[dict[str, Any]], list[BadRecord]]:
    """Decode all ``values`` in one call, and let pyarrow check each buffer."""
    decoded = ProtobufDecoder(compile_protobuf(made.DESCRIPTOR), POOL).decode(pa.array(values, pa.binary()))
    assert decoded.upto == len(values)
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    assert batch.num_rows == decoded.rows == len(values) - len(decoded.bad)
    return shown(batch), decoded.bad


def agree(made: type[Message], values: Sequence[bytes]) -> None:
    """Compare each of the ``values`` with what google.protobuf says of it."""
    rows, bad = decode(made, values)
    wrong = {each.row: each for each in bad}
    seen = iter(rows)
    for row, value in enumerate(values):
        try:
            message = made.FromString(value)
        except DecodeError:
            assert row in wrong, value
            assert wrong[row].reason in REASONS
            assert 0 <= wrong[row].offset <= len(value)
            continue
        if row in wrong:
            # Texts of proto2 are not checked there, and times may be any numbers.
            assert wrong[row].reason in ("InvalidUtf8", "OutOfRange", "MissingField"), (value, wrong[row], message)
            assert wrong[row].reason != "MissingField" or not message.IsInitialized()
            continue
        assert message.IsInitialized()
        found = next(seen)
        assert same(found, expected(message)), (value, found, message)


@slow
@given(messages())
def test_generated_messages_are_those_of_protobuf(drawn: tuple[type[Message], list[Message]]) -> None:
    made, given_messages = drawn
    rows, bad = decode(made, [each.SerializeToString() for each in given_messages])
    assert not bad
    for row, message in zip(rows, given_messages, strict=True):
        assert same(row, expected(message)), (row, message)


@slow
@given(messages())
def test_each_truncation_is_read_as_by_protobuf(drawn: tuple[type[Message], list[Message]]) -> None:
    made, given_messages = drawn
    whole = given_messages[0].SerializeToString()
    agree(made, [each for size in range(len(whole) + 1) for each in (whole[:size], whole)])


@slow
@given(messages(cut=False), st.integers(0, 1 << 32))
def test_mutations_are_read_as_by_protobuf(drawn: tuple[type[Message], list[Message]], seed: int) -> None:
    made, given_messages = drawn
    chance = random.Random(seed)
    wholes = [each.SerializeToString() for each in given_messages]
    values = []
    for _ in range(60):
        mutant = bytearray(chance.choice(wholes))
        for _ in range(chance.randint(0, 3)):
            place = chance.randrange(len(mutant) + 1)
            kind = chance.randrange(4)
            if kind == 0 and mutant:
                mutant[place % len(mutant)] = chance.choice((0, 1, 2, 3, 8, 0x0B, 0x0C, 0x7F, 0x80, 0xFF, 99))
            elif kind == 1:
                mutant[place:place] = chance.choice(wholes)
            elif kind == 2:
                del mutant[place : place + chance.choice((1, 2, 8))]
            else:
                mutant += chance.choice(wholes)
        values.append(bytes(mutant))
    agree(made, values)
