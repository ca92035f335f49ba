"""The group under which a cluster keeps our progress: offsets for all to see, and whose partitions are whose.

Offsets follow what is durable. They are a courtesy to people and tools: what has landed is known by the dataset.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from fastwire.errors import FastwireError
from fastwire.kafka.error import RETRY, BrokerError, Code
from fastwire.kafka.message import Body
from fastwire.kafka.question import NO_MEMBER
from fastwire.position import Coverage, Position

from ...backoff import Backoff
from ...kafka.cluster import Cluster
from ...kafka.link import Link
from ...kafka.refusal import is_for_good
from ...logs import get_logger
from .partition import Partition, Stage
from .settings import KafkaSettings

__all__ = ["Alone", "Group", "Reader"]

COMMIT_S = 1.0  # between two commits while records flow
# What a group says whose members are about to change: whoever still has the partition then commits.
_LATER = RETRY | {
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
    Code.STALE_MEMBER_EPOCH,
}

log = get_logger("source")


class Reader(Protocol):
    """Whoever reads what the group gives: the source."""

    partitions: list[Partition]

    @property
    def topic_names(self) -> Sequence[str]: ...
    async def ask_topics(self, also: Collection[str] = ()) -> None: ...
    def assign(self, partitions: Sequence[Partition]) -> None: ...
    def give_up(self, partitions: Sequence[Partition], reason: str) -> None: ...
    def refuse(self, error: FastwireError) -> None: ...
    def follow_topics(self) -> None: ...
    def position(self, index: int) -> Position | None: ...


class Group:
    """Reads every partition, and commits offsets without being a member (kafka 5.1, OffsetCommit)."""

    def __init__(self, reader: Reader, settings: KafkaSettings, cluster: Cluster) -> None:
        self._reader = reader
        self._settings = settings
        self._cluster = cluster
        self._durable: dict[tuple[str, int], Position] = {}
        self._told: dict[tuple[str, int], Position] = {}  # what the broker has of it
        self._wake = asyncio.Event()
        self._error = ""

    async def run(self) -> None:
        """Take everything, and tell the broker what has landed, for ever."""
        self._reader.assign(self._reader.partitions)
        backoff = Backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._commit()
            except FastwireError as exc:
                self._error = str(exc)
                self._wake.set()
                told = is_for_good(exc)
                await asyncio.sleep(backoff.failed(log, "cannot commit offsets, trying again", exc, told=told))
            else:
                self._error = ""
                backoff.reset()
                await asyncio.sleep(COMMIT_S)

    def owns(self, partition: Partition) -> bool:
        """Whether this partition is ours to read."""
        return True

    def topics_changed(self, added: Sequence[Partition]) -> None:
        """There are new partitions, or other topics than before."""
        self._reader.assign(added)

    def gone(self, partitions: Iterable[Partition]) -> None:
        """These were deleted with their topics: nobody is to be told of their offsets."""
        for partition in partitions:
            self._durable.pop(partition.place, None)

    def granted(self, partitions: Iterable[Partition], coverage: Coverage) -> None:
        """These are read from here on; the group is told of what others have landed and not committed."""
        for partition in partitions:
            self._told.pop(partition.place, None)
            at, known = coverage.end(partition.log), partition.committed
            if at is not None and (known is None or known.a < at.a):
                self._durable[partition.place] = at
                self._wake.set()

    def void(self) -> None:
        """What was not durable is gone."""

    def landed(self, coverage: Coverage) -> None:
        """All of this is durable."""
        for partition in self._reader.partitions:
            deleted = partition.stage in (Stage.REPLACED, Stage.GONE)
            if not partition.was_granted or deleted or not self._commits(partition):
                continue
            at = coverage.end(partition.log)
            if at is not None and self._told.get(partition.place, partition.committed) != at:
                self._durable[partition.place] = at
        if self._durable:
            self._wake.set()

    async def committed(self, places: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Offset and epoch that the group has of these; those without are left out."""
        group = self._settings.group
        return await self._cluster.committed(await self._cluster.coordinator(group, "ask"), group, places)

    async def leave(self) -> None:
        """Tell the broker the last offsets."""
        if self._durable:
            try:
                await self._commit()
            except FastwireError as exc:
                log.warning("the last offsets were not committed; the dataset knows them", error=str(exc))

    def status(self) -> dict[str, Any]:
        """For the status page."""
        return {"kind": "none: all partitions are read", "error": self._error}

    def _commits(self, partition: Partition) -> bool:
        """Whether the offset of this one is ours to tell."""
        return True

    def _committing(self) -> Body:
        return NO_MEMBER

    async def _coordinator(self) -> Link:
        return await self._cluster.coordinator(self._settings.group)

    async def _commit(self) -> None:
        durable, self._durable = self._durable, {}
        offsets = {place: (at.a, at.b) for place, at in durable.items()}
        try:
            link = await self._coordinator()
            failed = await self._cluster.commit(link, self._settings.group, offsets, self._committing())
        except BaseException:
            self._durable = durable | self._durable
            raise
        self._told |= {place: at for place, at in durable.items() if place not in failed}
        again = {place: at for place, at in durable.items() if failed.get(place) in _LATER}
        self._durable = again | self._durable
        for place, code in failed.items():
            raise BrokerError(code, f"offset of {place[0]} partition {place[1]}")


class Alone:
    """No group: everything is read, nothing is kept."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def run(self) -> None:
        """Take everything."""
        self._reader.assign(self._reader.partitions)

    def owns(self, partition: Partition) -> bool:
        """All of them."""
        return True

    def topics_changed(self, added: Sequence[Partition]) -> None:
        """There are new partitions, or other topics than before."""
        self._reader.assign(added)

    def gone(self, partitions: Iterable[Partition]) -> None:
        """Nobody was told of them."""

    def granted(self, partitions: Iterable[Partition], coverage: Coverage) -> None:
        """Nobody is told."""

    def landed(self, coverage: Coverage) -> None:
        """Nobody is told."""

    def void(self) -> None:
        """Nobody is told."""

    async def committed(self, places: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Nothing is."""
        return {}

    async def leave(self) -> None:
        """Nobody knows us."""

    def status(self) -> dict[str, Any]:
        """For the status page."""
        return {"kind": "none"}
