"""Decoding Protobuf beside google.protobuf: generated messages, every truncation, damage, and hostile sizes."""

import random

import pyarrow as pa
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastwire.wire.pool import Pool
from tests.support.protobuf import agree, decode, expected, messages, same

POOL = Pool(256 << 20)
slow = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


@slow
@given(messages())
def test_generated_messages_are_those_of_protobuf(drawn: tuple[type[Message], list[Message]]) -> None:
    made, given_messages = drawn
    values = [each.SerializeToString() for each in given_messages]
    rows, bad = decode(made, pa.array(values, pa.binary()), POOL)
    assert not bad
    for row, message in zip(rows, given_messages, strict=True):
        assert same(row, expected(message)), (row, message)


@slow
@given(messages())
def test_each_truncation_is_read_as_by_protobuf(drawn: tuple[type[Message], list[Message]]) -> None:
    made, given_messages = drawn
    whole = given_messages[0].SerializeToString()
    values = [each for size in range(len(whole) + 1) for each in (whole[:size], whole)]
    agree(made, pa.array(values, pa.binary()), POOL)


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
    agree(made, pa.array(values, pa.binary()), POOL)
