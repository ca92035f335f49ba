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
    def attach(self, index: int, position: Position, session: int, witness: int | None = None) -> None: ...
    def look_back(self, index: int) -> None: ...
    def fetch_sequence(self, index: int) -> int: ...
    def position(self, index: int) -> Position: ...
    def result(self, index: int) -> PartitionResult: ...
