from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Self, final

from fastwire.columns.chunk import Chunk
from fastwire.kafka.response import Fetched, Planned
from fastwire.kafka.slot import SlotTable
from fastwire.position import Position
from fastwire.wire.pool import Pool

__all__ = ["CorruptBatch", "Scanner", "Stop"]

class Stop(IntEnum):
    NEED_BYTES = 0
    CHUNK_FULL = 1
    COLD_RESPONSE = 2
    FETCHED = 3
    CORRUPT = 4
    OUTPUT_CAP = 5

@dataclass(frozen=True, slots=True)
class CorruptBatch:
    index: int
    position: Position
    reason: str
    detail: str

@final
class Scanner:
    def __new__(
        cls,
        slots: SlotTable,
        pool: Pool,
        *,
        columns: AbstractSet[str] | None = None,
        on_corrupt: str = "divert",
        buffer_bytes: int = ...,
    ) -> Self: ...
    @property
    def open_rows(self) -> int: ...
    @property
    def has_open(self) -> bool: ...
    @property
    def buffered(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def received_bytes(self) -> int: ...
    @property
    def cut_rows(self) -> int: ...
    @property
    def aborted_batches(self) -> int: ...
    def plan(self, correlation_id: int, planned: Planned) -> None: ...
    def get_buffer(self, sizehint: int = -1) -> memoryview: ...
    def received(self, nbytes: int) -> None: ...
    def resume(self) -> None: ...
    def scan(self) -> int: ...
    def take_response(self) -> bytes | None: ...
    def take_fetched(self) -> Fetched | None: ...
    def take_corrupt(self) -> CorruptBatch | None: ...
    def take_chunk(self) -> Chunk | None: ...
    def drop_chunk(self) -> None: ...
