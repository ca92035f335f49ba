from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Self, final

from fastwire.columns.scan import ChunkScanner
from fastwire.position import Position
from fastwire.reason import Reason
from fastwire.tank.reading.response import Fetched, Planned
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool

__all__ = ["CorruptBundle", "Scanner"]

@dataclass(frozen=True, slots=True)
class CorruptBundle:
    index: int
    position: Position
    reason: Reason
    detail: str
    replaced: bool = False

@final
class Scanner(ChunkScanner):
    def __new__(
        cls,
        slots: SlotTable,
        pool: Pool,
        *,
        columns: AbstractSet[str] | None = None,
        on_corrupt: str = "dead_letter",
        buffer_bytes: int = ...,
        clock: object = None,
    ) -> Self: ...
    @property
    def bundles(self) -> int: ...
    def plan(self, request_id: int, planned: Planned) -> None: ...
    def take_found(self) -> tuple[int, bytes] | Fetched | CorruptBundle | None: ...
