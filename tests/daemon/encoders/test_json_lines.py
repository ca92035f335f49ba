"""Lines of JSON: the form of each type, and pieces of any size."""

import base64
import errno
import io
import json
import math
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastwire.columns.text import LineFormatter
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from tests.daemon.encoders.test_formats import options


def lines_of(batch: pa.RecordBatch, step: int = 1 << 20) -> list[bytes]:
    pieces: list[bytes] = []
    LineFormatter(batch).write(pieces.append, step)
    text = b"".join(pieces)
    if max(map(len, text.split(b"\n"))) < step:
        assert all(piece.endswith(b"\n") for piece in pieces)
    return text.split(b"\n")[:-1]


def json_cell(cell: bytes | None) -> Any:
    if cell is None:
        return None
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(cell).decode()}


CELL = (
    st.none()
    | st.binary(max_size=40)
    | st.text(max_size=40).map(str.encode)
    | st.text(alphabet='"\\\b\f\n\r\t\x00\x1f\x7f/é\u2028a', max_size=40).map(str.encode)
)


@settings(deadline=None, max_examples=300)
@given(st.lists(CELL, max_size=8), st.integers(0, 8), st.integers(1, 60))
def test_binary_is_text_or_base64(cells: list[bytes | None], first: int, step: int) -> None:
    batch = pa.record_batch({"v": pa.array(cells, pa.binary())}).slice(first)
    found = [json.loads(line) for line in lines_of(batch, step)]
    assert found == [{"v": json_cell(cell)} for cell in cells[first:]]


@settings(deadline=None, max_examples=300)
@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps_are_rfc_3339(moment: datetime) -> None:
    (line,) = lines_of(pa.record_batch({"t": pa.array([moment], pa.timestamp("us", "UTC"))}))
    assert line.decode() == f'{{"t":"{moment:%H:%M:%S.%fZ}"}}'.replace('"t":"', f'"t":"{moment.date().isoformat()}T')


def test_timestamps_of_other_units_and_far_away() -> None:
    cells = {
        "s": pa.array([-1], pa.timestamp("s")),
        "ms": pa.array([1_001], pa.timestamp("ms", "Europe/Berlin")),
        "ns": pa.array([-1], pa.timestamp("ns", "UTC")),
        "low": pa.array([-(2**63)], pa.timestamp("us", "UTC")),
        "high": pa.array([2**63 - 1], pa.timestamp("us", "UTC")),
    }
    (line,) = lines_of(pa.record_batch(cells))
    assert json.loads(line) == {
        "s": "1969-12-31T23:59:59.000000",
        "ms": "1970-01-01T00:00:01.001000Z",
        "ns": "1969-12-31T23:59:59.999999999Z",
        "low": "-290308-12-21T19:59:05.224192Z",
        "high": "+294247-01-10T04:00:54.775807Z",
    }


def test_every_type_has_its_form() -> None:
    integers = {
        kind: pa.array([low, high, None], kind)
        for kind, low, high in (
            (pa.int8(), -(2**7), 2**7 - 1),
            (pa.int16(), -(2**15), 2**15 - 1),
            (pa.int32(), -(2**31), 2**31 - 1),
            (pa.int64(), -(2**63), 2**63 - 1),
            (pa.uint8(), 0, 2**8 - 1),
            (pa.uint16(), 0, 2**16 - 1),
            (pa.uint32(), 0, 2**32 - 1),
            (pa.uint64(), 0, 2**64 - 1),
        )
    }
    cells = {str(kind): array for kind, array in integers.items()} | {
        "bool": pa.array([True, False, None]),
        "null": pa.nulls(3),
        "large": pa.array([b"a", b"\xff", None], pa.large_binary()),
        "text": pa.array(["a", "\u0000", None], pa.large_string()),
        "list": pa.array([[1, None], [], None], pa.large_list(pa.int8())),
        'a"b': pa.array([{"x": 1, "y": [{"z": "q"}]}, {"x": None, "y": None}, None]),
    }
    batch = pa.record_batch(cells)
    expected = batch.to_pylist()
    expected[0]["large"], expected[1]["large"] = "a", {"base64": "/w=="}
    assert [json.loads(line) for line in lines_of(batch)] == expected
    assert [json.loads(line) for line in lines_of(batch.slice(1, 1))] == expected[1:2]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.floats(), min_size=1), st.lists(st.floats(width=32), min_size=1))
def test_floats_read_as_the_same_numbers(doubles: list[float], floats: list[float]) -> None:
    for cells, kind in ((doubles, pa.float64()), (floats, pa.float32())):
        (line,) = lines_of(pa.record_batch({"v": pa.array([cells], pa.list_(kind))}))
        found = json.loads(line, parse_int=lambda text: pytest.fail(f"{text} has neither a point nor an exponent"))
        again = [float(text.replace("Infinity", "inf")) if isinstance(text, str) else text for text in found["v"]]
        assert pa.array(again, kind).equals(pa.array(cells, kind)) or any(map(math.isnan, cells))
        assert list(map(str, pa.array(again, kind).to_pylist())) == list(map(str, cells))  # also -0.0 and NaN


def test_floats_have_few_digits() -> None:
    batch = pa.record_batch({"d": [0.1, 1.0, 1e23], "f": pa.array([0.1, 16777216, 1e-5], pa.float32())})
    assert lines_of(batch) == [b'{"d":0.1,"f":0.1}', b'{"d":1.0,"f":16777216.0}', b'{"d":1e+23,"f":1e-05}']


@settings(deadline=None, max_examples=300)
@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_are_text_with_all_their_places(number: int, scale: int) -> None:
    value = Decimal(number).scaleb(-scale, Context(prec=40))
    (line,) = lines_of(pa.record_batch({"v": pa.array([value], pa.decimal128(38, scale))}))
    assert json.loads(line) == {"v": f"{value:f}"}


@settings(deadline=None, max_examples=300)
@given(st.dates(), st.times())
def test_dates_and_times_are_parts_of_rfc_3339(day: date, clock: time) -> None:
    whole = clock.replace(microsecond=clock.microsecond // 1000 * 1000)
    (line,) = lines_of(
        pa.record_batch(
            {
                "day": pa.array([day]),
                "us": pa.array([clock], pa.time64("us")),
                "ns": pa.array([clock], pa.time64("ns")),
                "ms": pa.array([whole], pa.time32("ms")),
                "s": pa.array([clock.replace(microsecond=0)], pa.time32("s")),
            }
        )
    )
    assert json.loads(line) == {
        "day": day.isoformat(),
        "us": clock.isoformat("microseconds"),
        "ns": clock.isoformat("microseconds") + "000",
        "ms": whole.isoformat("microseconds"),
        "s": clock.isoformat("seconds") + ".000000",
    }


def test_maps_are_objects_and_bytes_can_be_base64_always() -> None:
    cells = {
        "text": pa.array([[("a", 1), ('"', None)], [], None], pa.map_(pa.string(), pa.int8())),
        "numbers": pa.array([[(-1, b"ab")], None, [(2, None)]], pa.map_(pa.int64(), pa.binary())),
        "flags": pa.array([[(True, 1)], [(False, 2)], []], pa.map_(pa.bool_(), pa.int8())),
        "fixed": pa.array([b"ab", b"\xff\xff", None], pa.binary(2)),
        "key": pa.array([b"ab", b"\xff\xff", None]),
    }
    batch = pa.record_batch(cells)
    plain = [
        {"text": {"a": 1, '"': None}, "numbers": {"-1": "ab"}, "flags": {"true": 1}, "fixed": "ab", "key": "ab"},
        {"text": {}, "numbers": None, "flags": {"false": 2}, "fixed": {"base64": "//8="}, "key": {"base64": "//8="}},
        {"text": None, "numbers": {"2": None}, "flags": {}, "fixed": None, "key": None},
    ]
    assert [json.loads(line) for line in lines_of(batch)] == plain
    assert [json.loads(line) for line in lines_of(batch.slice(1))] == plain[1:]
    pieces: list[bytes] = []
    LineFormatter(batch, base64=["numbers", "fixed"]).write(pieces.append)
    first, second, _ = map(json.loads, b"".join(pieces).splitlines())
    assert (first["numbers"], first["fixed"], first["key"]) == ({"-1": "YWI="}, "YWI=", "ab")
    assert (second["fixed"], second["key"]) == ("//8=", {"base64": "//8="})


def test_long_texts_cross_the_formatter_s_steps() -> None:
    text = ("\x01" * 50_000 + "a" * 16_383 + '"' * 9 + "é" * 20_000).encode()
    odd = bytes(range(256)) * 500
    batch = pa.record_batch({"v": pa.array([text, odd, b""], pa.binary())})
    assert [json.loads(line)["v"] for line in lines_of(batch, 10)] == [text.decode(), json_cell(odd), ""]


class Sizes(io.RawIOBase):
    """A file that remembers how much it was given at once."""

    def __init__(self) -> None:
        self.largest = 0
        self.text = b""

    def write(self, data: Any, /) -> int:
        self.largest = max(self.largest, len(data))
        self.text += data
        return len(data)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([bytes(1 << 20)], pa.binary()),
        pa.array([b"\xff" * (3 << 20)], pa.binary()),
        pa.array([[{"key": "", "value": None}] * 200_000]),
    ],
    ids=["escapes", "base64", "list"],
)
def test_a_line_is_written_in_pieces_however_long_it_gets(column: pa.Array) -> None:
    file = Sizes()
    batch = pa.record_batch({"v": column})
    encoder = JsonlEncoder(file, batch.schema, options(JsonlEncoder))
    encoder.write(batch)
    encoder.finish()
    assert len(file.text) > 4 << 20
    assert file.largest <= (2 << 20) + (73 << 10)
    expected = json_cell(column[0].as_py()) if pa.types.is_binary(column.type) else column[0].as_py()
    assert json.loads(file.text)["v"] == expected


def test_what_the_taker_of_lines_raises_ends_them() -> None:
    taken: list[bytes] = []

    def take(text: bytes) -> None:
        taken.append(text)
        raise OSError(errno.ENOSPC, "no space")

    formatter = LineFormatter(pa.record_batch({"v": pa.array([1, 2])}))
    with pytest.raises(OSError, match="no space"):
        formatter.write(take, 1)
    assert taken == [b'{"v":1}\n']
    formatter.write(taken.append)
    assert taken[1:] == [b'{"v":1}\n{"v":2}\n']


def test_a_type_without_a_form_is_named() -> None:
    schema = pa.schema([("ok", pa.int8()), ("odd", pa.list_(pa.float16()))])
    with pytest.raises(TypeError, match=r"column 'odd\.item' has the Arrow format 'e', which has no JSON form here"):
        JsonlEncoder(io.BytesIO(), schema, options(JsonlEncoder))
    for odd in (pa.decimal256(40, 2), pa.decimal128(5, -2), pa.month_day_nano_interval()):
        with pytest.raises(TypeError, match="which has no JSON form here"):
            LineFormatter(pa.record_batch({"odd": pa.nulls(1, odd)}))
    for key in (pa.binary(), pa.dictionary(pa.int8(), pa.string())):
        with pytest.raises(TypeError, match="column 'odd' is a map whose keys have no JSON form"):
            LineFormatter(pa.record_batch({"odd": pa.nulls(1, pa.map_(key, pa.int8()))}))
    with pytest.raises(TypeError, match="need a struct array"):
        LineFormatter(pa.array([1]))
