from enum import IntEnum
from typing import Self

from fastwire.columns.logs import LogTable
from fastwire.columns.scan import ChunkScanner
from fastwire.wire.pool import Pool

__all__ = ["Place", "Scanner", "Stop"]

class Stop(IntEnum):
    NEED_BYTES = ...
    ANSWER = ...

class Place:
    index: int
    partition: int
    offset: int
    def __new__(cls, index: int, partition: int, offset: int) -> Self: ...

class Scanner(ChunkScanner):
    place: Place | None
    text: bytes
    def __new__(cls, table: LogTable, pool: Pool, *, columns: frozenset[str] | None = None) -> Self: ...
