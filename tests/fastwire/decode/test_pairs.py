"""Records of a key and a value, taken apart."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.pairs import Part, split_pairs


def part(data: bytes | None) -> bytes:
    return (-1 if data is None else len(data)).to_bytes(4, "big", signed=True) + (data or b"")


def pair(key: bytes | None, value: bytes | None) -> bytes:
    return part(key) + part(value)


def read(part: Part) -> list[Any]:
    buffers = [pa.py_buffer(each) for each in (part.validity, part.offsets, part.data)]
    array = pa.Array.from_buffers(pa.binary(), len(part.offsets) // 4 - 1, buffers)
    array.validate(full=True)
    found: list[Any] = array.to_pylist()
    return found


def split(records: Sequence[bytes | None], chosen: bytes | None = None) -> tuple[list[Any], list[Any], list[int]]:
    marks = b"\1" * len(records) if chosen is None else chosen
    keys, values, bad = split_pairs(pa.array(records, pa.binary()), marks)
    return read(keys), read(values), bad


def test_keys_and_values() -> None:
    assert split([bytes.fromhex("000000036b65790000000576616c7565")]) == ([b"key"], [b"value"], [])
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (b"", b"v"),
        (None, b"v"),
        (b"k", None),
        (None, None),
        (b"k", b""),
    ]
    keys, values, bad = split([pair(*each) for each in pairs] * 5)
    assert ([*zip(keys, values, strict=True)], bad) == (pairs * 5, [])
    assert split([]) == ([], [], [])


def test_records_that_are_not_pairs() -> None:
    records = [b"plain", pair(b"k", b"v"), None, None]
    assert split(records, b"\0\xff\0\1") == ([None, b"k", None, None], [b"plain", b"v", None, None], [])


def test_records_that_should_be_pairs() -> None:
    sound = pair(b"key", b"value")
    long, negative = (part(b"k") + size.to_bytes(4, "big", signed=True) + b"v" for size in (1 << 30, -2))
    damaged = [*(sound[:size] for size in range(len(sound))), sound + b" ", long, negative, b"\x80" + bytes(7)]
    for record in damaged:
        found = split([sound, record, sound])
        assert found == ([b"key", None, b"key"], [b"value", b"", b"value"], [1]), record


def test_a_slice_of_a_column() -> None:
    column = pa.array([pair(b"a", b"1"), None, pair(b"b", b"2"), b"x"], pa.binary()).slice(1, 3)
    keys, values, bad = split_pairs(column, b"\1\1\1")
    assert (read(keys), read(values), bad) == ([None, b"b", None], [None, b"2", b""], [2])
    assert keys.nbytes == 1 + 16 + 1


def test_what_is_no_column_of_bytes() -> None:
    with pytest.raises(ValueError, match="1 marks for 2 records"):
        split_pairs(pa.array([b"", b""], pa.binary()), b"\1")
    with pytest.raises(ValueError, match="not a column of bytes"):
        split_pairs(pa.array([1]), b"\1")
