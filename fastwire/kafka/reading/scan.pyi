from collections.abc import Set as AbstractSet
from typing import Self, final

from fastwire.columns.scan import ChunkScanner
from fastwire.kafka.reading.evidence import CorruptBatch
from fastwire.kafka.reading.response import Fetched, Planned
from fastwire.kafka.reading.slot import SlotTable
from fastwire.wire.pool import Pool

__all__ = ["Scanner"]

@final
class Scanner(ChunkScanner):
    raw: bool
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
    def batches(self) -> int: ...
    def plan(self, correlation_id: int, planned: Planned) -> None: ...
    def take_found(self) -> bytes | Fetched | CorruptBatch | None: ...
