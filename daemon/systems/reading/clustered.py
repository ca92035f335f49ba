"""The common base of sources that read from a cluster: back-pressure, connections, the timer, the shutdown."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log

from ...net.transport import Pause
from ...runtime.budget import Level
from ...runtime.logs import get_logger
from ...runtime.metrics import PipelineMetrics
from ...runtime.tasks import Tasks
from ..links.link import BrokerLink
from ..links.linkbook import LinkBook
from ..source import Assignment, First, SourceEvents, SourceFailed
from .lag import Lag
from .offers import Offers
from .stage import Stage, StagedPartition

TICK_S = 0.05
TELL_HELD_S = 30.0  # nothing is read for so long: a line says why
CHUNK_AGE_S = 0.1
MOST_TOLD, MOST_NAMED = 20, 5  # topics that are found at once with log lines of their own; those named of more
SILENT_S = 1.0  # without a byte from the connection whose frame is to be completed: it is another one's turn
SCANNED = ("receive", "scan", "decompress", "decode")  # as in ``Scanner.times``

# Plain numbers: these flags change with nearly every chunk, and an operation on a flag costs a microsecond.
_QUEUE = int(Pause.QUEUE)
_MEMORY = int(Pause.MEMORY)

log = get_logger("source")


C = TypeVar("C", bound=LinkBook[Any, Any])
L = TypeVar("L", bound=BrokerLink[Any, Any, Any])
P = TypeVar("P", bound=StagedPartition)


def tell_found(topics: Sequence[tuple[str, int]]) -> None:
    """Log topics that were found, with their numbers of partitions; of many, how many they are and the first names."""
    if len(topics) > MOST_TOLD:
        names, partitions = [topic for topic, _ in topics[:MOST_NAMED]], sum(count for _, count in topics)
        log.info("topics found", topics=len(topics), partitions=partitions, names=names)
        return
    for topic, count in topics:
        log.info("topic found", topic=topic, partitions=count)


class ClusteredSource(ABC, Generic[C, L, P]):
    """Reads partitions ``P`` of cluster ``C`` by links ``L``: the part of ``Source`` that is common to all systems.

    Links report their events by ``on_connected``, ``on_lost`` and ``on_chunk``.
    """

    patient = True
    """Tries again what may be served later, for ever: as a pipeline, and not a command that ends."""
    confirms = True
    """See ``Source.confirms``."""
    shared = True
    """See ``Source``."""
    cluster: C
    _stats: Lag

    follows_group = False
    """See ``LimitedSource.follows_group``; systems whose assignments have a cursor anyway need no request for it."""
    goes_back = True
    """See ``LimitedSource.goes_back``."""

    def __init__(self, events: SourceEvents, metrics: PipelineMetrics | None) -> None:
        self.events = events
        self.logs: list[Log] = []
        self.partitions: list[P] = []
        self.level = Level.FREE
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._offers = Offers(events, self.logs)
        self._tasks = Tasks(lambda fault: self.refused(SourceFailed(fault)))
        self._timer: asyncio.TimerHandle | None = None
        self._full = False  # the pipeline has no room for chunks
        self._finishing: L | None = None  # the one connection that is read at Level.FINISH
        self._finishing_from = (0.0, 0)  # the time and its ``bytes_read`` of the last look
        self._passed: set[L] = set()  # connections that were silent in their turn
        self._unread: set[L] = set()  # connections of which a line says that they are not read
        self._resolving: Counter[int] = Counter()  # indexes of partitions
        self._closing = False
        self._failed = False
        self._unreachable_since: float | None = self._loop.time()
        self._reconnects: Counter[str] = Counter()
        self._spent_ns: Counter[str] = Counter()  # by stage; waits as sampled by the timer

    # --- the contract

    @property
    def cluster_id(self) -> str:
        """See ``Source.cluster_id``."""
        return ""

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        """See ``Source.resolve``."""
        indexes = Counter(assignment.index for assignment in assignments)
        self._resolving += indexes
        self._steer()
        try:
            finding = asyncio.gather(*(self._resolve(assignment, coverage) for assignment in assignments))
            self._loop.call_soon(self._steer)  # after the first requests: their answers must be read
            found = await finding
        finally:
            self._resolving -= indexes
            self._steer()
        return [first for first in found if first is not None]

    @abstractmethod
    async def _resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        """Resolve one assignment: see ``Source.resolve``."""

    def _chosen(self, indexes: Collection[int] | None) -> Sequence[P]:
        """Return the partitions ``indexes``, all of them for None."""
        return self.partitions if indexes is None else [self.partitions[index] for index in indexes]

    def holds(self, assignment: Assignment) -> bool:
        """See ``ShareableSource.holds``."""
        return self.partitions[assignment.index].assignment is assignment

    def _cut_off(self, indexes: Collection[int] | None) -> Sequence[P]:
        """Return the partitions ``indexes``, whose received records are void; no open chunk has any of them any more.

        Chunks are dropped if all partitions are meant, and passed on if records of others are in them.
        """
        for link in tuple(self.cluster.links.values()):
            if indexes is None:
                link.drop_chunk()
            else:
                link.hand_on()
        return self._chosen(indexes)

    def resume(self) -> None:
        """See ``Source.resume``."""
        if self._full:
            self._full = False
            self._steer()

    def set_paused(self, index: int, *, paused: bool) -> None:
        """See ``LimitedSource.set_paused``."""
        raise ValueError("a partition of this system does not pause: take no chunks, which pauses all")

    def on_budget(self, level: Level) -> None:
        """See ``Source.on_budget``."""
        self.level = level
        self._steer()

    @property
    def offering(self) -> bool:
        """See ``Source.offering``."""
        return bool(self._offers)

    @property
    def unreachable_since(self) -> float | None:
        """See ``Source.unreachable_since``."""
        return self._unreachable_since

    @property
    def unreachable_because(self) -> str:
        """See ``Source.unreachable_because``."""
        return self.cluster.failure

    @property
    def backlog(self) -> int | None:
        """See ``Source.backlog``."""
        return self._stats.backlog

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """See ``Source.stage_ns``."""
        self._count_times(self.cluster.links.values())
        return self._spent_ns

    def _count_times(self, links: Iterable[BrokerLink[Any, Any, Any]]) -> None:
        for link in links:
            for stage, spent in zip(SCANNED, link.take_times(), strict=True):
                self._spent_ns[stage] += spent

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        return {
            "partitions": self._stages(),
            "errors": {str(one.log): one.error for one in self.partitions if one.error},
            "connections": [
                {
                    "broker": str(link),
                    "ready": link.ready,
                    "bytes_read": link.transport.bytes_read,
                    "paused": [why.name for why in Pause if why and link.transport.paused & why],
                    "held_s": round(_held_s(link, self._loop.time()), 1),
                    **link.status(),
                }
                for link in self.cluster.links.values()
            ],
            "reconnects": dict(self._reconnects),
            "lag": self._stats.status(self._loop.time()),
        }

    def _stages(self) -> dict[str, int]:
        """Return the number of partitions by stage; none is being read while no broker is reachable."""
        stages = Counter(partition.stage.value for partition in self.partitions)
        if self.unreachable_since is not None and (cut := stages.pop(Stage.READING.value, 0)):
            stages["waiting for a broker"] = cut
        return dict(stages)

    async def close(self, timeout: float) -> None:
        """See ``Source.close``."""
        if self._closing:
            return
        self._closing = True
        self._offers.close()
        await self._tasks.close()
        try:
            async with asyncio.timeout(timeout):
                await self._say_goodbye()
        except TimeoutError:
            log.warning("the broker did not confirm the shutdown in time", timeout_s=timeout)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._stats.close()
            await self.cluster.close()

    @abstractmethod
    async def _say_goodbye(self) -> None:
        """Send the acks that wait, and close the consumers or leave the group."""

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``work`` in the background until it ends or the source is closed."""
        return self._tasks.run(work, name)

    def is_fatal(self, error: FastwireError) -> bool:
        """Return True if ``error`` ends this source, because no retry can cure it.

        A refused login does not end a source that runs on, at its start no more than later: the files of tokens and
        passwords are renewed, and read again for each login. Readers that end anyway (``patient`` is false) report it.
        """
        return self.is_for_good(error) and not (self.patient and self.is_of_login(error))

    @abstractmethod
    def is_for_good(self, error: FastwireError) -> bool:
        """Return True if ``error`` needs a change of the configuration, the credentials or permissions."""

    def is_of_login(self, error: FastwireError) -> bool:
        """Return True if ``error`` is about the credentials: the broker refuses them, or there are none."""
        return False

    def refused(self, error: SourceFailed) -> None:
        """Fail the pipeline once: the broker refuses the source, and a retry cannot help."""
        if not self._failed and not self._closing:
            self._failed = True
            self.events.on_failed(error)

    # --- events of links

    def on_chunk(self, chunk: Chunk) -> None:
        """Pass a chunk to the pipeline; pause reading if it has no room for another."""
        finished, self._finishing = self._finishing, None
        if self._closing:
            chunk.release()
        elif not self.events.on_chunk(chunk) and not self._full:
            self._full = True
            self._steer()
        elif finished is not None:
            self._steer()  # before it begins with another frame

    def on_connected(self, link: L) -> None:
        """Note that a handshake is complete."""
        link.on_grown = self.events.on_grown
        self._unreachable_since = None
        server = {"server": link.server} if link.server else {}
        log.info("connected", broker=str(link), **server)
        self._steer()
        self._count_connections()

    def on_lost(self, link: L, reason: Exception | None) -> None:
        """Forget a lost connection, log it, and have its partitions read by another one."""
        self._count_times((link,))
        self.cluster.forget(link)
        if self._closing:
            return
        if not self.cluster.ready and self._unreachable_since is None:
            self._unreachable_since = self._loop.time()
        if link.was_idle and (reason is None or isinstance(reason, OSError)):
            # Brokers and firewalls close what is not used, and nothing is made again until it is needed.
            log.info("idle connection closed by the broker", broker=str(link))
        else:
            log.warning("connection lost", broker=str(link), reason=str(reason or "closed by the broker"))
            self._reconnected(link.why(reason))
        self._count_connections()
        self._left(link)

    @abstractmethod
    def _left(self, link: L) -> None:
        """Move the partitions that this link has read to another link."""

    def _reconnected(self, reason: str) -> None:
        self._reconnects[reason] += 1
        if self._metrics is not None:
            self._metrics.reconnected(reason)

    def _count_connections(self) -> None:
        if self._metrics is not None:
            self._metrics.connections.set(sum(link.ready for link in self.cluster.links.values()))

    # --- back-pressure

    @property
    @abstractmethod
    def holding(self) -> bool:
        """True while no more records may be requested."""

    def _answering(self) -> Collection[L]:
        """Return the links with an answer that is needed now: records before it are read despite the memory limit."""
        return ()

    def _carries_records(self, link: L) -> bool:
        return True

    @abstractmethod
    def _ask_on(self) -> None:
        """Request records, or no more of them while ``holding``."""

    def _steer(self) -> None:
        """Pause or resume reading and requests, according to the room in the pipeline and in memory."""
        lacking = (_QUEUE if self._full else 0) | (_MEMORY if self.level >= Level.FINISH else 0)
        finishing = self._choose() if self.level is Level.FINISH else None
        answering = self._answering() if lacking else ()
        for link in tuple(self.cluster.links.values()):
            transport = link.transport
            held = transport.paused & (_QUEUE | _MEMORY)
            # A connection may have been paused for partitions that are not read any more.
            wanted = lacking if self._carries_records(link) and link not in answering else 0
            if link is finishing:
                wanted &= ~_MEMORY
            if held == wanted or not link.ready:
                continue
            if wanted & ~held:
                transport.pause(wanted & ~held)
                self._loop.call_soon(link.connection.scanner.shrink)  # not within a read, which still has the buffer
            if held & ~wanted:
                transport.go_on(held & ~wanted)
        self._ask_on()

    def _choose(self) -> L | None:
        """Return the connection to read at ``Level.FINISH``: that with most bytes of an incomplete frame.

        It stays the same one until it has given a chunk, unless it is silent.
        """
        now = self._loop.time()
        if (link := self._finishing) is not None and link.ready:
            since, before = self._finishing_from
            if link.transport.bytes_read != before:
                self._finishing_from = (now, link.transport.bytes_read)
                return link
            if now - since < SILENT_S:
                return link
            self._passed.add(link)
        waiting = {each for each in self.cluster.links.values() if each.ready and each.connection.scanner.buffered}
        if waiting <= self._passed:
            self._passed.clear()
        self._finishing = max(waiting - self._passed, key=lambda each: each.connection.scanner.buffered, default=None)
        if self._finishing is not None:
            self._finishing_from = (now, self._finishing.transport.bytes_read)
        return self._finishing

    # --- the clock

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._loop.time()
        links = tuple(self.cluster.links.values())
        for link in links:
            # A pipeline without room gets no chunk just because of its age.
            link.tick(now, float("inf") if self._full else CHUNK_AGE_S)
        # Sampled by the timer and not at a check, which comes right after a read, when room is scarcest.
        if full := max((link.transport.take_full_ns() for link in links), default=0):
            self._spent_ns["back_pressure"] += full
        elif self.holding:
            self._spent_ns["permits"] += int(TICK_S * 1e9)
        if self._resolving or self.level is Level.FINISH:
            self._steer()  # later requests may have gone to other links; a frame may be complete, or its broker silent
        self._tell_held(links, now)
        self._look(now)

    def _tell_held(self, links: Sequence[L], now: float) -> None:
        """Log the connections whose reading back-pressure has paused for long, and the end of each pause."""
        held = {link for link in links if _held_s(link, now) >= TELL_HELD_S}
        for link in held - self._unread:
            why = "the memory budget is used up" if link.transport.paused & _MEMORY else "the sink takes no more"
            log.warning("nothing is read", broker=str(link), held_s=round(_held_s(link, now)), why=why)
        for link in self._unread.intersection(links) - held:
            log.info("reading goes on", broker=str(link))
        self._unread = held

    @abstractmethod
    def _look(self, now: float) -> None:
        """Do the periodic work of the system."""


def _held_s(link: BrokerLink[Any, Any, Any], now: float) -> float:
    """Return the seconds for which back-pressure has paused the reading of a connection; 0 if it is not paused."""
    since = link.transport.held_since
    return 0.0 if since is None else now - since
