"""The index of pages: readers trust it, so each page must lie there and hold nothing beyond its bounds."""

import io
import random
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fastwire.parquet.footers import Compact, chunks_of, places_of
from tests.fastwire.parquet.tables import written

ROWS = 45_000
PAGE_ROWS = 20_000


def bounds_of(file: bytes, chunk: dict[int, Any]) -> list[tuple[bool, bytes, bytes, int]]:
    """Return for each page whether it is without values, its bounds, and its number of nulls."""
    index = Compact(file, chunk[6])
    found = index.struct()
    assert index.at == chunk[6] + chunk[7]
    assert found[4] == 0
    return list(zip(found[1], found[2], found[3], found[5], strict=True))


def column(rng: random.Random, kind: pa.DataType) -> pa.Array:
    """Values, nulls, and whole pages of either."""
    if pa.types.is_list(kind):
        cells: list[Any] = [rng.choice([None, [], [1], [2, None, 3] * 20]) for _ in range(ROWS)]
        return pa.array(cells, kind)
    if pa.types.is_string(kind):
        cells = [rng.choice([None, "a" * rng.randint(0, 90), f"z{at}"]) for at in range(ROWS)]
    elif pa.types.is_floating(kind):
        cells = [rng.choice([None, rng.random(), -0.0, float("nan")]) for _ in range(ROWS)]
    else:
        cells = [rng.choice([None, at, -at, at * 1000]) for at in range(ROWS)]
    for at in range(PAGE_ROWS, 2 * PAGE_ROWS):
        cells[at] = None
    return pa.array(cells, kind)


def unpacked(value: bytes, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return value
    return struct.unpack("<d" if pa.types.is_floating(kind) else "<q", value)[0]


@pytest.mark.parametrize("role", ["plain", "counter"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.list_(pa.int64())], ids=str)
def test_pages_lie_where_it_says_and_hold_what_it_says(kind: pa.DataType, role: str) -> None:
    rng = random.Random(5)
    array = column(rng, kind)
    batch = pa.record_batch({"x": array, "row": pa.array(range(ROWS))})
    groups = [[batch.slice(0, 7), batch.slice(7)], [batch.slice(3, 9)]]
    file = written(groups, batch.schema, columns={"x": (role, True), "row": ("counter", True)}, codec="none")
    assert pq.read_table(io.BytesIO(file)).num_rows == ROWS + 9
    for chunks, rows in zip(chunks_of(file), (array, array.slice(3, 9)), strict=True):
        metadata = chunks[0][3]
        places = places_of(file, chunks[0])
        assert [offset for offset, _, _ in places] == [
            metadata[9] + sum(size for _, size, _ in places[:at]) for at in range(len(places))
        ]
        heads = [Compact(file, offset) for offset, _, _ in places]
        sizes = [(head.struct(), head.at) for head in heads]
        assert [offset + size for offset, size, _ in places] == [at + header[3] for header, at in sizes]
        firsts = [first for _, _, first in places]
        ends = [*firsts[1:], len(rows)]
        assert firsts[0] == 0
        pages = [rows.slice(first, end - first) for first, end in zip(firsts, ends, strict=True)]
        if pa.types.is_list(kind):
            entries = [sum(max(1, len(cell or ())) for cell in page.to_pylist()) for page in pages]
            assert [header[5][1] for header, _ in sizes] == entries
            assert len(pages) > 1 or len(rows) < PAGE_ROWS
            continue
        assert [header[5][1] for header, _ in sizes] == [len(page) for page in pages]
        bounds = bounds_of(file, chunks[0])
        assert [(empty, nulls) for empty, _, _, nulls in bounds] == [
            (page.null_count == len(page), page.null_count) for page in pages
        ]
        for page, (empty, low, high, _) in zip(pages, bounds, strict=True):
            values = [each for each in page.drop_null().to_pylist() if each == each]
            if empty:
                assert (low, high) == (b"", b"")
            elif pa.types.is_string(kind):
                texts = sorted(value.encode() for value in values)
                assert low == texts[0]
                assert texts[-1] <= high
            else:
                assert (unpacked(low, kind), unpacked(high, kind)) == (min(values), max(values))


def test_a_file_whose_chunks_have_one_page_has_no_index() -> None:
    batch = pa.record_batch({"x": pa.array(range(100)), "text": pa.array(["a"] * 100)})
    file = written([[batch], [batch]], batch.schema, columns={"x": ("counter", True)})
    assert not any({4, 5, 6, 7} & chunk.keys() for chunks in chunks_of(file) for chunk in chunks)


def test_columns_without_statistics_have_places_alone() -> None:
    """Also a value that has no bound, and pages of numbers that are none."""
    nothing = pa.array([float("nan")] * ROWS)
    greatest = pa.array(["\U0010ffff" * 20] + ["a"] * (ROWS - 1))
    batch = pa.record_batch({"x": pa.array(range(ROWS)), "nothing": nothing, "greatest": greatest})
    columns = {"nothing": ("plain", True), "greatest": ("counter", True)}
    (chunks,) = chunks_of(written([[batch]], batch.schema, columns=columns))
    assert [sorted({4, 5, 6, 7} & chunk.keys()) for chunk in chunks] == [[4, 5]] * 3
