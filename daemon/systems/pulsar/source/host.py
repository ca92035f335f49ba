"""The interface of a source to its partitions."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar.names.topic import ServiceUrl
from fastwire.pulsar.reading.slot import SlotTable

from ...source import Assignment, LogStopped, SourceFailed
from ..cluster import Cluster
from .firstposition import StartAt

P_contra = TypeVar("P_contra", contravariant=True)


class Host(Protocol[P_contra]):
    """The source of partitions ``P_contra``, as the partitions see it."""

    cluster: Cluster
    slots: SlotTable
    gate: asyncio.Semaphore
    follows_group: bool  # see ``LimitedSource``

    @property
    def closing(self) -> bool:
        """True once the source is being closed."""

    @property
    def holding(self) -> bool:
        """True if no more records may be requested."""

    @property
    def most_permits(self) -> int:
        """The permit window with which a consumer begins."""

    def start_of(self, partition: P_contra) -> StartAt:
        """Return the start of a log that neither Coverage nor the broker's cursor knows."""

    def end_of(self, partition: P_contra, coverage: Coverage) -> Position | None:
        """Return where a bounded run ends in a log; None for a run without end."""

    async def is_another_log(self, partition: P_contra) -> bool:
        """Return True if the broker has another entry at the place of the last one that has landed."""

    def offer(self, partition: P_contra, assignment: Assignment) -> None:
        """Offer a log that can be read to the pipeline."""

    def revoke(self, partition: P_contra, assignment: Assignment, granted: bool, reason: str) -> None:
        """Withdraw a log that cannot be read any more."""

    def stopped(self, partition: P_contra, error: LogStopped) -> None:
        """Report a log that is stopped."""

    def diverged(self, partition: P_contra, reason: str) -> None:
        """Report that staged records of a log must not land."""

    def is_fatal(self, error: FastwireError) -> bool:
        """Return True if ``error`` ends the source, because no retry can cure it."""

    def refused(self, error: SourceFailed) -> None:
        """Fail with ``error``, which a retry cannot cure."""

    def moved(self, partition: P_contra, service: ServiceUrl) -> None:
        """Continue with a topic in the cluster that it has moved to."""

    def missed(self, partition: P_contra) -> None:
        """Note that a topic found by a pattern does not exist."""

    def note_acks(self, partition: P_contra) -> None:
        """Note that a consumer may have acks to send."""

    def reconnecting(self, partition: P_contra, reason: str) -> None:
        """Note that a consumer has to reconnect."""

    def run(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run ``work`` as a task of the source."""
