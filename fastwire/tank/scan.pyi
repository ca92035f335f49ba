from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Self, final

from fastwire.columns.scan import ChunkScanner
from fastwire.errors import Damage
from fastwire.position import Position
from fastwire.tank.response import Fetched, Planned
from fastwire.tank.slot import SlotTable
from fastwire.wire.pool import Pool

__all__ = ["CorruptBundle", "Scanner", "Stop"]

class Stop(IntEnum):
    NEED_BYTES = 0
    CHUNK_FULL = 1
    OUTPUT_CAP = 2
    ANSWER = 3
    FETCHED = 4
    CORRUPT = 5
    PING = 6

@dataclass(frozen=True, slots=True)
class CorruptBundle:
    index: int
    position: Position
    reason: Damage
    detail: str

@final
class Scanner(ChunkScanner):
    def __new__(
        cls,
        slots: SlotTable,
        pool: Pool,
        *,
        columns: AbstractSet[str] | None = None,
        on_corrupt: str = "divert",
        buffer_bytes: int = ...,
        clock: object = None,
    ) -> Self: ...
    @property
    def bundles(self) -> int: ...
    @property
    def cut_rows(self) -> int: ...
    def plan(self, request_id: int, planned: Planned) -> None: ...
    def take_answer(self) -> tuple[int, bytes] | None: ...
    def take_fetched(self) -> Fetched | None: ...
    def take_corrupt(self) -> CorruptBundle | None: ...
