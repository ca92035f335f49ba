"""The index of the pages of a column chunk: where each lies, and what its values are between (parquet.thrift)."""

from typing import Protocol

from fastwire.parquet.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, binary, integer, many, struct

_UNORDERED = 0
_NO_BOUND = b""  # of a page without values


class _Ends(Protocol):
    def bounds(self) -> tuple[bytes, bool, bytes | None, bool] | None: ...


class PageIndex:
    """The data pages of a column chunk, in order. Readers that look for few rows skip pages by it."""

    __slots__ = ("_ends", "_locations", "_nulls", "_row", "_values")

    def __init__(self) -> None:
        self._locations: list[bytes] = []
        self._ends: list[_Ends | None] = []
        self._values: list[int] = []
        self._nulls: list[int] = []
        self._row = 0

    def add(self, offset: int, size: int, rows: int, values: int, nulls: int, ends: _Ends | None) -> None:
        """Add a page of ``size`` bytes with its header; ``ends`` are those of its values, None: they are not known."""
        self._locations.append(struct((1, I64, integer(offset)), (2, I32, integer(size)), (3, I64, integer(self._row))))
        self._row += rows
        self._values.append(values)
        self._nulls.append(nulls)
        self._ends.append(ends)

    def __len__(self) -> int:
        return len(self._locations)

    def offset_index(self) -> bytes:
        """Return the encoded OffsetIndex."""
        return struct((1, LIST, many(STRUCT, self._locations)))

    def column_index(self) -> bytes | None:
        """Return the encoded ColumnIndex; None unless both bounds of every page with values are known."""
        lows, highs = [], []
        for values, ends in zip(self._values, self._ends, strict=True):
            bounds = None if ends is None else ends.bounds()
            if not values:
                bounds = _NO_BOUND, False, _NO_BOUND, False
            if bounds is None or bounds[2] is None:
                return None
            lows.append(binary(bounds[0]))
            highs.append(binary(bounds[2]))
        empty = [bytes((FALSE if values else TRUE,)) for values in self._values]
        return struct(
            (1, LIST, many(TRUE, empty)),
            (2, LIST, many(BINARY, lows)),
            (3, LIST, many(BINARY, highs)),
            (4, I32, integer(_UNORDERED)),
            (5, LIST, many(I64, [integer(nulls) for nulls in self._nulls])),
        )
