from typing import Self

from fastwire.columns.logs import LogTable
from fastwire.columns.scan import ChunkScanner
from fastwire.wire.pool import Pool

__all__ = ["Scanner", "Slot"]

class Slot:
    index: int
    partition: int
    offset: int
    def __new__(cls, index: int, partition: int, offset: int) -> Self: ...

class Scanner(ChunkScanner):
    slot: Slot | None
    def __new__(cls, table: LogTable, pool: Pool, *, columns: frozenset[str] | None = None) -> Self: ...
    def take_found(self) -> bytes | None: ...
