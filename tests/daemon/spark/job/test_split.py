"""Input rows split into rows of the table and dead letters, as a task of a job does it."""

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from fastwire_daemon.spark.job.schema import Decoded, Reader
from fastwire_daemon.spark.job.split import Column, RowSplit, count_reasons

TIMES = [datetime(1969, 12, 31, 23, 30, tzinfo=UTC), datetime(2026, 1, 2, 3, tzinfo=UTC)] * 3
INPUT = pa.record_batch(
    {
        "value": pa.array([b"1", b"x", b"", b"4", b"y", b"6"], pa.binary()),
        "offset": pa.array(range(10, 16), pa.int64()),
        "timestamp": pa.array(TIMES, pa.timestamp("us", "UTC")),
    }
)
COLUMNS = [
    Column("number", "value", "number"),
    Column("_offset", "input", "offset"),
    Column("date", "date", "timestamp"),
    Column("hour", "hour", "timestamp"),
]


class Numbers:
    """Decodes digits, two values at a time; an empty value has no number, letters are bad."""

    record = pa.struct([("number", pa.int64())])

    def compile(self) -> Reader:
        def read(values: pa.Array) -> Iterator[Decoded]:
            for first in range(0, len(values), 2):
                cells = values[first : first + 2].to_pylist()
                bad = [(first + i, f"it is {cell.decode()}") for i, cell in enumerate(cells) if cell.isalpha()]
                good = [int(cell) if cell else None for cell in cells if not cell.isalpha()]
                yield Decoded(pa.record_batch({"number": pa.array(good, pa.int64())}), first, first + 2, bad)

        return read


def split(key: tuple[str, ...] = ()) -> RowSplit:
    copy: RowSplit = pickle.loads(pickle.dumps(RowSplit(Numbers(), COLUMNS, key)))
    return copy


def together(pieces: Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]) -> tuple[list[dict[str, Any]], list[Any]]:
    good, bad = zip(*pieces, strict=True)
    return pa.Table.from_batches(good).to_pylist(), pa.Table.from_batches(bad).to_pylist()


GOOD: list[dict[str, Any]] = [
    {"number": 1, "_offset": 10, "date": date(1969, 12, 31), "hour": 23},
    {"number": None, "_offset": 12, "date": date(1969, 12, 31), "hour": 23},
    {"number": 4, "_offset": 13, "date": date(2026, 1, 2), "hour": 3},
    {"number": 6, "_offset": 15, "date": date(2026, 1, 2), "hour": 3},
]
DEAD_LETTERS: list[dict[str, Any]] = [
    {"value": b"x", "offset": 11, "timestamp": TIMES[1], "reason": "it is x"},
    {"value": b"y", "offset": 14, "timestamp": TIMES[0], "reason": "it is y"},
]
NULL = {"value": b"", "offset": 12, "timestamp": TIMES[0], "reason": "NullKey: number is null and part of the key"}


def test_times_outside_of_the_calendar_have_no_day() -> None:
    far = [253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_001, (1 << 63) - 1]
    times = pa.array(far, pa.timestamp("us", "UTC"))
    rows = pa.record_batch({"value": [b"1"] * 4, "offset": pa.array(range(4)), "timestamp": times})
    good = pa.Table.from_batches([good for good, _ in split().open()(rows)])
    assert good["date"].to_pylist() == [date(9999, 12, 31), None, None, None]
    assert good["hour"].to_pylist() == [23, None, None, None]


@pytest.mark.parametrize("table", [False, True])
def test_values_that_cannot_name_a_folder_are_bad(table: bool) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    columns = [Column("city", "input", "city"), Column("number", "value", "number")]
    rows = pa.record_batch({"value": [b"1", b"2", b"3", b"4"], "city": ["Zürich", null, "x" * 256, None]})
    split = RowSplit(Numbers(), columns, (), ("city",), table)
    good, bad = together(split.open()(rows))
    assert [row["city"] for row in good] == ["Zürich", *([null] if table else []), None]
    assert [row["reason"] for row in bad] == [
        *([] if table else ["NoNameForAFolder, in city"]), "TooLongForAFolder, in city"
    ]  # fmt: skip


def test_good_rows_have_the_columns_of_the_table_and_bad_ones_those_of_the_input() -> None:
    good, bad = together(split().open()(INPUT))
    assert good == GOOD
    assert bad == DEAD_LETTERS


@pytest.mark.parametrize("key", [("number",), ("_offset", "number")])
def test_a_null_in_the_key_is_bad(key: tuple[str, ...]) -> None:
    good, bad = together(split(key).open()(INPUT))
    assert good == [row for row in GOOD if row["number"] is not None]
    assert bad == [DEAD_LETTERS[0], NULL, DEAD_LETTERS[1]]


def test_two_keys_that_are_null_give_one_letter() -> None:
    columns = [*COLUMNS, Column("again", "value", "number")]
    _, bad = together(RowSplit(Numbers(), columns, ("number", "again")).open()(INPUT))
    assert bad == [DEAD_LETTERS[0], NULL, DEAD_LETTERS[1]]


def test_without_a_decoder_rows_stay_as_they_are() -> None:
    columns = [Column(name, "input", name) for name in INPUT.schema.names]
    good, bad = together(RowSplit(None, columns, ()).open()(INPUT))
    assert good == INPUT.to_pylist()
    assert bad == []


def test_reasons_are_counted() -> None:
    counts: dict[str | None, int] = {}
    for batch in count_reasons(split(("number",)).open)(iter([INPUT, INPUT.slice(0, 0)])):
        counts |= {row["reason"]: row["rows"] for row in batch.to_pylist()}
    good = [row for row in GOOD if row["number"] is not None]
    assert counts == {None: len(good), **{row["reason"]: 1 for row in (*DEAD_LETTERS, NULL)}}
