"""Numbers as they are written: against protobuf's own encoder, and against what Kafka's clients write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.wire.writer import encode_varint, encode_zigzag


@given(st.integers(-(2**63), 2**64 - 1))
def test_varints_are_those_of_protobuf(value: int) -> None:
    ident = pb.MessageIdData(ledgerId=value % 2**64, entryId=0)
    assert b"\x08" + encode_varint(value) == ident.SerializeToString().removesuffix(b"\x10\x00")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (300, "d804"),
        (-300, "d704"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_signed_numbers_in_zigzag_form(value: int, wanted: str) -> None:
    assert encode_zigzag(value).hex() == wanted


@pytest.mark.parametrize("encode", [encode_varint, encode_zigzag])
def test_what_is_no_number(encode: object) -> None:
    with pytest.raises(TypeError):
        encode("1")  # type: ignore[operator]
