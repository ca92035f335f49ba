from collections.abc import Set as AbstractSet
from typing import Self, final

from fastwire.columns.scan import ChunkScanner
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, Planned
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

__all__ = ["ZONE_MINUTES", "Scanner"]

ZONE_MINUTES: int

@final
class Scanner(ChunkScanner):
    def __new__(
        cls,
        slots: SlotTable,
        pool: Pool,
        *,
        columns: AbstractSet[str] | None = None,
        on_corrupt: str = "dead_letter",
        zone_minutes: int = ...,
        buffer_bytes: int = ...,
        clock: object = None,
    ) -> Self: ...
    @property
    def messages(self) -> int: ...
    @property
    def cut_rows(self) -> int: ...
    @property
    def filtered_rows(self) -> int: ...
    @property
    def damaged(self) -> int: ...
    def plan(self, serial: int, planned: Planned) -> None: ...
    def take_found(self) -> tuple[int, bytes] | Fetched | CorruptMessage | None: ...
