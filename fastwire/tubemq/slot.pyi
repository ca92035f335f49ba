from collections.abc import Iterable
from typing import Self, final

from fastwire.columns.slots import PartitionSlots
from fastwire.position import Log, Position

__all__ = ["SlotTable"]

@final
class SlotTable(PartitionSlots):
    def __new__(cls, logs: Iterable[Log] = ()) -> Self: ...
    def add(self, log: Log, types: Iterable[str] = ()) -> int: ...
    def attach(self, index: int, position: Position, session: int) -> None: ...
    def position(self, index: int) -> Position: ...
