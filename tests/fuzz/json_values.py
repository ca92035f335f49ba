"""Mutated JSON against the decoder of values: a row, or a reason that agrees with orjson; its neighbours stay.

    python -m tests.fuzz.json_values --seconds 600 --seed 1

What was found is a test (``tests/fastwire/decode/test_jsonmutation.py``).
"""

import json
import random
import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import orjson
import pyarrow as pa

from fastwire.decode.json.schema import compile_json
from fastwire.decode.json.walk import JsonDecoder
from fastwire.wire.pool import Pool
from tests.fuzz.drawn import spoilt
from tests.fuzz.hunt import Case, Subject, counting, main
from tests.support.json import is_json, written

BLOCK = 5000
MOST_MEMORY = 4 << 20
NOT_JSON = {"Truncated", "InvalidJson", "InvalidEscape", "InvalidUtf8", "TrailingBytes"}


def _field(name: str, kind: Any, /, **logical: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, **logical} if logical else kind}


_FIELDS = [
    _field("id", "long"),
    _field("text", ["null", "string"]),
    _field("amount", "double"),
    _field("small", ["null", "float"]),
    _field("paid", "boolean"),
    _field("cents", "bytes", logicalType="decimal", precision=20, scale=2),
    _field("raw", ["null", "bytes"]),
    _field("created_at", "long", logicalType="timestamp-micros"),
    _field("day", "int", logicalType="date"),
    _field("tags", "array", items=["null", "string"]),
    _field("labels", "map", values="long"),
    _field("lines", "array", items={"type": "record", "name": "Line", "fields": [
        _field("kind", "enum", name="Kind", symbols=["NEW", "USED"]), _field("count", "int"),
    ]}),
]  # fmt: skip
_PROGRAM = compile_json(json.dumps({"type": "record", "name": "Top", "fields": _FIELDS}))
_SOUND = {
    "id": 1 << 53, "text": "né \U0001f4a9 \"a/b\"", "amount": -1.25e-7, "small": None, "paid": True, "cents": 12.5,
    "raw": "aGk=", "created_at": "2026-08-01T12:34:56.789+02:00", "day": "2024-02-29", "tags": ["a", None, "\n"],
    "labels": {"a": 1, "\\": 2}, "lines": [{"kind": "USED", "count": 3}, {"count": 4, "kind": "NEW"}],
    "unknown": [{"a": [1, False, None, "x"]}, {}],
}  # fmt: skip
_NEIGHBOUR = orjson.dumps({**_SOUND, "id": 7})
PIECES = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e", b"E+99", b" ", b"\n", b"\x00", b"\x1f",
    b"\xff", b"null", b"true", b"false", b"\\u", b"\\ud83d", b"\\udca9", b"\\u0000", b"\xed\xa0\x80", b"\xc3\xa9",
    b"\xf0\x9f", b"9" * 19, b"9" * 40, b'"NaN"', b'"-Infinity"', b"=", b'"count":1', b"[" * 600, b'{"a":' * 600,
    b"24:00:00", b"Z",
)  # fmt: skip


def cases(seed: int) -> Iterator[Case]:
    """The bytes of changed texts of a seed, without end."""
    chance = random.Random(seed)
    while True:
        yield [f"{byte:02x}" for byte in spoilt(written(_SOUND, chance), chance, PIECES)]


def column(values: list[bytes]) -> pa.Array:
    """A column whose bytes end where the last value does, so that a sanitizer sees a read beyond it."""
    ends = array("i", accumulate(map(len, values), initial=0))
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def run_case(words: Case) -> Counter[str]:
    """Decode one text between two sound ones, and at the end of a column."""
    text = bytes.fromhex("".join(words))
    pool = Pool(1 << 28)
    decoder = JsonDecoder(_PROGRAM, pool)
    decoded = decoder.decode(column([_NEIGHBOUR, text, _NEIGHBOUR]))
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    rows = batch.column("id").to_pylist()
    alone = decoder.decode(column([text]))
    assert [each[1:] for each in alone.bad] == [each[1:] for each in decoded.bad]
    assert pool.peak <= MOST_MEMORY, f"{pool.peak} bytes were out at once"
    if not decoded.bad:
        assert is_json(text), "orjson refuses the text"
        assert (len(rows), rows[0], rows[2]) == (3, 7, 7)
        return Counter(["row"])
    [bad] = decoded.bad
    assert bad.row == 1, bad
    assert 0 <= bad.offset <= len(text), bad
    assert rows == [7, 7]
    assert bad.reason not in NOT_JSON or not is_json(text), bad
    return Counter([bad.reason])


run_block = counting(cases, run_case)
"""Run so many cases of a seed from one on; returns how often what came of them."""


SUBJECT = Subject("tests.fuzz.json_values", "json", BLOCK, run_block, cases, run_case)


if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
