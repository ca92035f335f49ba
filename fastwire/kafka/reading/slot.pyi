from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

from fastwire.columns.slots import PartitionSlots
from fastwire.position import Log, Position

__all__ = ["PartitionResult", "SlotTable"]

@dataclass(frozen=True, slots=True)
class PartitionResult:
    error: int
    high_watermark: int
    stable_offset: int
    log_start: int
    leader: int
    leader_epoch: int
    preferred_replica: int
    diverging: int
    received: int

@final
class SlotTable(PartitionSlots):
    def __new__(cls, logs: Iterable[Log] = ()) -> Self: ...
    def add(self, log: Log) -> int: ...
    def attach(self, index: int, position: Position, session: int, witness: int | None = None) -> None: ...
    def look_back(self, index: int) -> None: ...
    def position(self, index: int) -> Position: ...
    @property
    def probing(self) -> int: ...
    def fetch_offset(self, index: int) -> int: ...
    def fetch_bytes(self, index: int, most: int) -> int: ...
    def result(self, index: int) -> PartitionResult: ...
