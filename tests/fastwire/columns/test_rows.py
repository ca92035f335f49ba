"""Rows of Arrow batches as producers see them: types, slices, nulls, and what is refused."""

from typing import Any

import pyarrow as pa
import pytest

from fastwire.columns.routes import Routes
from fastwire.columns.rows import Rows
from fastwire.kafka.producing.outgoing import RecordBlock, RecordRoutes
from fastwire.pulsar.producing.outgoing import MessageBlock, MessageRoutes

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch() -> pa.RecordBatch:
    return pa.record_batch(
        {
            "value": pa.array([b"a", None, b"", b"\xff"], pa.binary()),
            "key": pa.array(["é", None, "", "k"], pa.string()),
            "headers": pa.array([[("h", b"1"), ("é", None)], None, [], [("x", b"")]], HEADERS),
            "partition": pa.array([1, None, 0, -1], pa.int32()),
            "eventTime": pa.array([1_999, None, -5, 2_000], pa.timestamp("us", "UTC")),
            "orderingKey": pa.array([b"o", None, b"", None], pa.binary()),
            "other": pa.array([1, 2, 3, 4]),
        }
    )


RECORDS: list[tuple[Any, ...]] = [
    (b"a", "é", (("h", b"1"), ("é", None)), 1, b"o", 1),
    (None, None, (), None, None, None),
    (b"", "", (), -1, b"", 0),
    (b"\xff", "k", (("x", b""),), 2, None, -1),
]


def records(rows: Rows) -> list[tuple[Any, ...]]:
    return [rows.record(row) for row in range(len(rows))]


@pytest.mark.parametrize("first", range(5))
def test_rows_of_a_slice(first: int) -> None:
    sliced = batch().slice(first)
    assert records(Rows(sliced)) == RECORDS[first:]
    nested = pa.RecordBatch.from_struct_array(pa.concat_arrays([batch().to_struct_array()] * 2)[4 + first :])
    assert records(Rows(nested)) == RECORDS[first:]


def test_offsets_of_64_bits() -> None:
    wide = pa.record_batch(
        {"value": pa.array(["a", None], pa.large_string()), "key": pa.array([b"k", b""], "large_binary")}
    )
    assert [row[:2] for row in records(Rows(wide))] == [(b"a", b"k"), (None, b"")]


def test_keys_of_bytes_are_text_on_request() -> None:
    given = pa.record_batch({"value": pa.array([b"", b""]), "key": pa.array([b"k", b"\xff"])})
    assert [row[1] for row in records(Rows(given))] == [b"k", b"\xff"]
    assert [row[1] for row in records(Rows(given, text_keys=True))] == ["k", b"\xff"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array(["k"])}, 'there is no column "value"'),
        ({"value": pa.array([1])}, 'the column "value" has the Arrow format l, and must be text or bytes'),
        ({"value": pa.array(["v"]), "partition": pa.array([1])}, 'the column "partition" must be of 32-bit numbers'),
        ({"value": pa.array(["v"]), "eventTime": pa.array([1])}, 'the column "eventTime" must be of microseconds'),
        ({"value": pa.array(["v"]), "headers": pa.array([["h"]])}, 'the column "headers" must be lists of pairs'),
    ],
)
def test_columns_of_other_types(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rows(pa.record_batch(columns))


@pytest.mark.parametrize("routes", [RecordRoutes, MessageRoutes])
@pytest.mark.parametrize("header", [None, (None, b"v")])
def test_a_header_without_a_key(routes: type[Routes], header: Any) -> None:
    rows = Rows(pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([[header]], HEADERS)}))
    with pytest.raises(ValueError, match="a header has no key"):
        rows.record(0)
    with pytest.raises(ValueError, match="a header has no key"):
        routes(rows, 1)


def test_what_is_not_there() -> None:
    rows = Rows(batch())
    with pytest.raises(IndexError, match="row 4 of 4"):
        rows.record(4)
    routes = RecordRoutes(Rows(batch().select(["value", "partition"])), 1)
    assert routes.requested == (-1, 1)
    with pytest.raises(ValueError, match="no partition 0, or one that is requested, of 2"):
        routes.step(2, 0, (1, 1), 1)
    block = RecordBlock()
    with pytest.raises(ValueError, match="rows 0 to 5 of 4"):
        block.add(routes, 0, 5, 1, 1)
    with pytest.raises(IndexError, match="record 0 of 0"):
        block.encoded(0)


@pytest.mark.parametrize(("routes", "block"), [(RecordRoutes, RecordBlock), (MessageRoutes, MessageBlock)])
def test_records_of_a_block_know_the_numbers_of_their_rows(routes: Any, block: Any) -> None:
    values = pa.record_batch({"value": pa.array([b"%d" % n for n in range(9)])})
    filled = block() if block is RecordBlock else block(0)
    for given in (Rows(values, origin=100), Rows(values.slice(4), origin=500), Rows(values.slice(7))):
        routed = routes(given, 1)
        ((_, first, stop, _),) = routed.step(1, 0, (100, 1 << 20), 1 << 20)
        filled.add(routed, first, stop, 100, 1 << 20)
    expected = [*range(100, 109), *range(500, 505), -1, -1]
    assert filled.origin_numbers == expected
    one, other = filled.halves()
    assert one.origin_numbers + other.origin_numbers == expected
