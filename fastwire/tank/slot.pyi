from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

from fastwire.columns.slots import PartitionSlots
from fastwire.position import Log, Position

__all__ = ["PartitionResult", "SlotTable"]

@dataclass(frozen=True, slots=True)
class PartitionResult:
    status: int
    high_watermark: int
    first_available: int
    leader: tuple[str, int] | None
    received: int
    needed: int
    stuck: bool

@final
class SlotTable(PartitionSlots):
    def __new__(cls, logs: Iterable[Log] = ()) -> Self: ...
    def add(self, log: Log) -> int: ...
    def attach(self, index: int, position: Position, session: int) -> None: ...
    def position(self, index: int) -> Position: ...
    def result(self, index: int) -> PartitionResult: ...
