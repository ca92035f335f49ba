from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

from fastwire.columns.logs import LogTable
from fastwire.position import Log, Position

__all__ = ["SlotTable", "Told"]

@dataclass(frozen=True, slots=True)
class Told:
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
class SlotTable(LogTable):
    def __new__(cls, logs: Iterable[Log] = ()) -> Self: ...
    def add(self, log: Log) -> int: ...
    def attach(self, index: int, position: Position, session: int) -> None: ...
    def detach(self, index: int) -> None: ...
    def session(self, index: int) -> int: ...
    def position(self, index: int) -> Position: ...
    def told(self, index: int) -> Told: ...
    def largest_batch(self, index: int) -> int: ...
