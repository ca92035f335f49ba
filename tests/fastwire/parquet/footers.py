"""The metadata of a file that other libraries do not show: column chunks and the places of pages."""

from typing import Any

from fastwire.parquet.thrift import BINARY, FALSE, I8, I32, I64, LIST, STRUCT, TRUE


class Compact:
    """Reads Thrift's compact protocol: a struct is a dict by field number."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def integer(self) -> int:
        raw = self.varint()
        return (raw >> 1) ^ -(raw & 1)

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self.data[self.at]:
            self.at += 1
            number = number + (head >> 4) if head >> 4 else self.integer()
            fields[number] = head & 15 == TRUE if head & 15 in (TRUE, FALSE) else self.value(head & 15)
        self.at += 1
        return fields

    def value(self, kind: int) -> Any:
        if kind in (TRUE, I8):  # an item of a list, one byte
            self.at += 1
            return self.data[self.at - 1] if kind == I8 else self.data[self.at - 1] == TRUE
        if kind in (I32, I64, 4):
            return self.integer()
        if kind == BINARY:
            size = self.varint()
            self.at += size
            return self.data[self.at - size : self.at]
        if kind == LIST:
            head = self.data[self.at]
            self.at += 1
            count = head >> 4 if head >> 4 < 15 else self.varint()
            return [self.value(head & 15) for _ in range(count)]
        assert kind == STRUCT
        return self.struct()


def chunks_of(file: bytes) -> list[list[dict[int, Any]]]:
    """The encoded ColumnChunks of each row group."""
    size = int.from_bytes(file[-8:-4], "little")
    return [group[1] for group in Compact(file, len(file) - 8 - size).struct()[4]]


def places_of(file: bytes, chunk: dict[int, Any]) -> list[tuple[int, int, int]]:
    """Offset, size and first row of each page."""
    index = Compact(file, chunk[4])
    pages = [(page[1], page[2], page[3]) for page in index.struct()[1]]
    assert index.at == chunk[4] + chunk[5]
    return pages
