"""COMMITs, by which a group's offsets at the Brokers follow what has landed."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.tubemq.reading.slot import SlotTable

from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ...source import SourceEvents
from ..cluster import Cluster
from .partition import Partition
from .registrations import Registrations
from .settings import TubeMQSettings

AGAIN_S = 1.0  # after a COMMIT that has failed
FOLLOW_S = 300.0  # a group's offset is at most about this far behind what has landed
LOOK_S = 1.0
HOLD_S = 20.0  # the longest time without GETs for the sake of a COMMIT

log = get_logger("source")


class _Source(Protocol):
    settings: TubeMQSettings
    events: SourceEvents
    partitions: list[Partition]
    slots: SlotTable
    cluster: Cluster

    @property
    def coverage(self) -> Coverage: ...
    def went_on(self, partition: Partition, offset: int) -> None: ...


class Commits:
    """Sends the COMMITs of one member.

    A COMMIT confirms everything that was fetched (spec: tubemq 11.3). It is sent when all of that has landed and no GET
    is in flight, which a partition at its end reaches by itself. While messages keep coming, the partitions whose last
    COMMIT is ``FOLLOW_S`` old send no GETs until what they have fetched has landed, for ``HOLD_S`` at most. ``ask_on``
    sends the GETs that are due then. At the end of a log one is sent as often, because its response has the position.
    """

    def __init__(self, source: _Source, registrations: Registrations, tasks: Tasks, ask_on: Callable[[], None]) -> None:
        self._source = source
        self._registrations = registrations
        self._tasks = tasks
        self._ask_on = ask_on
        self._clock = asyncio.get_running_loop().time
        self._held: Sequence[Partition] = ()
        self._asked = False  # the pipeline was asked to commit for them
        self._look_at = 0.0
        self._hold_until = 0.0

    def soon(self, partition: Partition) -> None:
        """Send a COMMIT if all that was fetched has landed."""
        if (
            self._source.settings.keeps_offsets
            and partition.granted
            and partition.dirty
            and not (partition.in_flight or partition.committing)
            and self._source.coverage.end(partition.log) == self._source.slots.position(partition.index)
        ):
            partition.committing = True  # no GET until the response
            self._tasks.run(self._commit(partition, partition.session), "commit")

    async def _commit(self, partition: Partition, session: int) -> None:
        # The COMMIT is sent before this task first waits, so that nothing was fetched since it was planned.
        try:
            if partition.granted and partition.session == session:
                answer = await self._registrations.commit(partition)
                partition.dirty = False
                partition.confirmed_at = self._clock()
                current = partition.granted and partition.session == session
                if current and not self._source.slots.confirmed(partition.index, answer.currOffset):
                    self._source.went_on(partition, answer.currOffset)
        except FastwireError as exc:
            log.info("an offset was not committed", partition=str(partition.place), error=str(exc))
            partition.pace.due = max(partition.pace.due, self._clock() + AGAIN_S)
        finally:
            if partition.session == session:
                partition.committing = partition.held = False
        self._ask_on()

    async def last(self, partition: Partition, landed: bool) -> bool:
        """Confirm everything that was fetched if all of it has ``landed``; return True if the Broker has that."""
        if not landed or partition.in_flight:
            return False
        if not partition.dirty:
            return True
        try:
            await self._registrations.commit(partition)
        except FastwireError as exc:
            log.debug("an offset was not committed", partition=str(partition.place), error=str(exc))
            return False
        partition.dirty = False
        return True

    def look(self, now: float) -> None:
        """Hold back partitions whose offset is far behind, and let them go on; called by the source's timer."""
        if self._held:
            self._held = [one for one in self._held if one.held and one.granted]
            if now >= self._hold_until:
                self._release()
            elif self._held and not self._asked and not any(one.in_flight for one in self._held):
                self._asked = True
                self._source.cluster.hand_on()
                self._source.events.on_unconfirmed("the group's offsets")
        elif now >= self._look_at and self._source.settings.keeps_offsets:
            self._look_at = now + LOOK_S
            # Nothing else tells at the end of a log that an administrator has moved the group's offset behind messages.
            for one in self._source.partitions:
                if one.granted and one.at_end and now - one.confirmed_at >= FOLLOW_S:
                    one.dirty = True
                    self.soon(one)
            late = [one for one in self._source.partitions if one.granted and one.dirty and not one.at_end]
            if any(now - one.confirmed_at >= FOLLOW_S for one in late):
                # All that are not confirmed are held back together: one commit of the dataset serves them all.
                self._held, self._asked, self._hold_until = late, False, now + HOLD_S
                for one in late:
                    one.held = True

    def _release(self) -> None:
        for one in self._held:
            one.held = False
            one.confirmed_at = self._clock()  # the next try is due as if it had been confirmed
        if self._held:
            log.info("the group's offsets stay behind: what was fetched has not landed in time", timeout_s=HOLD_S)
        self._held = ()
        self._ask_on()
