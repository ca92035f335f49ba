"""What a partition and its source know of each other."""

import asyncio
from collections.abc import Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import ServiceUrl

from ...pulsar.cluster import Cluster
from ..base import Assignment, LogStopped, SourceFailed
from .beginning import StartAt

if TYPE_CHECKING:
    from .partition import Partition

__all__ = ["Host", "Stage"]


class Stage(Enum):
    """What a partition is doing, in the words of the status page."""

    CONNECTING = "connecting"
    STAND_BY = "stand-by"
    ASSIGNED = "assigned"
    READING = "reading"
    STOPPED = "stopped"
    GONE = "gone"  # the topic was deleted; should it come again, so does the partition


class Host(Protocol):
    """What a partition needs of its source."""

    cluster: Cluster
    slots: SlotTable
    gate: asyncio.Semaphore

    @property
    def holding(self) -> bool: ...
    @property
    def most_permits(self) -> int: ...
    def start_of(self, partition: "Partition") -> StartAt: ...
    def offer(self, partition: "Partition", assignment: Assignment) -> None: ...
    def revoke(self, partition: "Partition", assignment: Assignment, granted: bool, reason: str) -> None: ...
    def stopped(self, partition: "Partition", error: LogStopped) -> None: ...
    def refused(self, error: SourceFailed) -> None: ...
    def moved(self, partition: "Partition", service: ServiceUrl) -> None: ...
    def missed(self, partition: "Partition") -> None: ...
    def reconnecting(self, partition: "Partition", reason: str) -> None: ...
    def run(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]": ...
