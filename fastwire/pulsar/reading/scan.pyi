from collections.abc import Set as AbstractSet
from typing import Self, final

from typing_extensions import Buffer

from fastwire.columns.scan import ChunkScanner
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

__all__ = ["Scanner"]

@final
class Scanner(ChunkScanner):
    max_message_size: int
    def __new__(
        cls,
        slots: SlotTable,
        pool: Pool,
        connection_id: int,
        *,
        columns: AbstractSet[str] | None = None,
        max_message_size: int = ...,
        on_corrupt: str = "dead_letter",
        buffer_bytes: int = ...,
        clock: object = None,
    ) -> Self: ...
    @property
    def entries(self) -> int: ...
    @property
    def landed_again(self) -> int: ...
    @property
    def staged_again(self) -> int: ...
    @property
    def redelivered(self) -> int: ...
    @property
    def dropped_frames(self) -> int: ...
    @property
    def unknown_commands(self) -> int: ...
    def take_found(self) -> bytes | ColdEntry | None: ...
    def hold(self, cold: ColdEntry) -> None: ...
    def cover(self, cold: ColdEntry) -> None: ...
    def finish(self, cold: ColdEntry, metadata: Buffer, payload: Buffer, *, whole: bool = False) -> bool: ...
    def inflate(self, compression: int, payload: Buffer, size: int) -> bytes: ...
    def keep_dead_letter(self, cold: ColdEntry) -> None: ...
