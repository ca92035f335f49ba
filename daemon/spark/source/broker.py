"""The driver's conversation with the brokers of one query, as each system completes it: see ``systems``.

Requests are tried again, and made with limited frequency.
"""

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from fastwire.errors import FastwireError
from fastwire.position import Position

from ...net.backoff import Backoff
from ...net.endpoint import LinkLost
from .connections import Cluster, Connections
from .options import Options
from .ranges import DataLossError, QueryPartition, Range, Witness

MOST_BACKOFF_S = 1.0
SMOOTHING = 0.2  # of a new figure in a running average
PATIENCE_S = 5.0  # for single records that cannot be read: they hold up no batch

logger = logging.getLogger("fastwire.spark")

NOTHING: Mapping[QueryPartition, Position] = MappingProxyType({})

B = TypeVar("B", bound=Cluster)
T = TypeVar("T")


class Broker(ABC, Generic[B]):
    """The driver's conversation with the brokers of one query; its process has one.

    Methods raise FastwireError when what they want cannot be had for longer than the query's patience.
    """

    def __init__(self, connections: Connections[B], options: Options) -> None:
        self._connections = connections
        self._cluster = connections.cluster
        self._options = options
        self._topics: dict[str, list[QueryPartition]] = {}
        self._topics_at = -math.inf
        self._heads: dict[QueryPartition, Position] = {}
        self._heads_at = -math.inf
        self._heads_of: set[QueryPartition] = set()  # who was asked for, whether there or not
        self._away: set[QueryPartition] = set()  # of those, who could not be asked
        self._row_bytes = 100.0
        self._sampled = False

    # --- what a system completes

    @abstractmethod
    def beginnings(self, partitions: Iterable[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the first position of each partition that exists."""

    @abstractmethod
    def incarnation(self, topic: str) -> str:
        """Return a text that changes when a topic is created again, as of the last ``heads``; "" if unknown."""

    @abstractmethod
    def at_time(self, partition: QueryPartition, time_ms: int) -> Position | None:
        """Return the position before the first record of that time or later; None if there is no such record."""

    @abstractmethod
    def rows(self, partition: QueryPartition, start: Position, end: Position) -> int:
        """Return the approximate number of records between two positions."""

    @abstractmethod
    def limited(self, partition: QueryPartition, start: Position, end: Position, rows: int) -> Position:
        """Return an end after about ``rows`` records: behind ``start``, and at most ``end``."""

    @abstractmethod
    def ranges(self, partition: QueryPartition, start: Position, end: Position, pieces: int) -> list[Range]:
        """Return one range, or up to ``pieces`` ranges that cover it exactly."""

    @abstractmethod
    def commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        """Tell the brokers that records up to these positions are durable elsewhere and not needed by this query."""

    @abstractmethod
    async def _find_topics(self) -> dict[str, list[QueryPartition]]:
        """Return the partitions of each topic of the query, by the name of the topic in the options."""

    @abstractmethod
    async def _ask_heads(
        self, partitions: list[QueryPartition]
    ) -> tuple[dict[QueryPartition, Position], dict[QueryPartition, FastwireError]]:
        """Return the ends of the partitions that exist, and the errors of those whose end is not available."""

    @abstractmethod
    def _hopeless(self, error: FastwireError) -> bool:
        """Return whether a retry is useless."""

    @abstractmethod
    def _sample(self, partition: QueryPartition, head: Position) -> None:
        """Look at the last records of a partition that has some, for the running averages."""

    @abstractmethod
    async def _find_witness(self, partition: QueryPartition, end: Position) -> Witness | None:
        """See ``witness``."""

    # --- single records

    def witness(self, partition: QueryPartition, end: Position) -> Witness | None:
        """Return the witness of the record that ends at ``end``, or of one soon behind it.

        Returns None if there is no such record, if it cannot be read within ``PATIENCE_S`` seconds, and in systems
        whose topics have ids, which show that a topic was made again.
        """
        what = f"looking at the record at the end of {partition}"
        try:
            return self.patiently(what, lambda: self._in_time(self._find_witness(partition, end)), PATIENCE_S)
        except FastwireError as exc:
            logger.info("%s", exc)
            return None

    def holds(self, witness: Witness) -> bool | None:
        """Return False if the broker has another record there, and None if it cannot be had in time.

        A record that is gone counts as unchanged.
        """
        what = f"comparing a record of {witness.partition}"
        try:
            return self.patiently(what, lambda: self._in_time(self._compare(witness)), PATIENCE_S)
        except FastwireError as exc:
            logger.warning("%s; it is compared later, and until then the query reads on", exc)
            return None

    async def _compare(self, witness: Witness) -> bool:
        found = await self._find_witness(witness.partition, witness.position)
        return found is None or found.position != witness.position or found.value == witness.value

    @staticmethod
    async def _in_time(work: Awaitable[T], most_s: float = PATIENCE_S) -> T:
        try:
            async with asyncio.timeout(most_s):
                return await work
        except TimeoutError:
            raise LinkLost(f"the broker sends no record in {most_s:.0f} s") from None

    # --- for the query

    def partitions(self) -> list[QueryPartition]:
        """Return the partitions that the query reads now; topics that do not exist have none.

        They are requested every ``topicRefreshIntervalMs``.
        """
        options = self._options
        if options.assigned is not None:
            return sorted(options.assigned)
        now = time.monotonic()
        if now - self._topics_at >= options.refresh_s:
            self._topics = self.patiently("finding the partitions", self._find_topics)
            self._topics_at = now
        return sorted({partition for found in self._topics.values() for partition in found})

    def topics(self) -> set[str]:
        """Return the named topics that ``partitions`` has found."""
        return set(self._topics) if self._options.assigned is None else set()

    def heads(
        self, partitions: Iterable[QueryPartition], known: Mapping[QueryPartition, Position] = NOTHING
    ) -> dict[QueryPartition, Position]:
        """Return the end of each partition that exists; the brokers are asked every ``offsetPollIntervalMs`` at most.

        ``known`` holds the positions up to which a query has read. A partition that is not available for a while ends
        there as long as others are available, or is left out if it is not in ``known``. With an empty ``known`` the
        call waits for all partitions.
        """
        wanted = list(partitions)
        now = time.monotonic()
        if now - self._heads_at >= self._options.poll_s or not self._heads_of.issuperset(wanted):
            self._heads_of = set(wanted)
            self._heads = self.patiently("asking where topics end", lambda: self._reachable(wanted, known))
            self._heads_at = time.monotonic()
        return {partition: self._heads[partition] for partition in wanted if partition in self._heads}

    async def _reachable(
        self, wanted: list[QueryPartition], known: Mapping[QueryPartition, Position]
    ) -> dict[QueryPartition, Position]:
        """Return the heads that are available: a partition without a leader does not delay the others."""
        found, failed = await self._ask_heads(wanted)
        for partition, error in failed.items():
            if not known or not found or self._hopeless(error):
                raise error
            if partition not in self._away:
                logger.warning(
                    "%s cannot be read at the moment, the query goes on with the others: %s", partition, error
                )
        self._away = set(failed)
        return found | {partition: known[partition] for partition in failed if partition in known}

    def bytes_per_row(self) -> float:
        """Return the average size of the sampled records, in bytes."""
        if not self._sampled:
            for partition, head in self._heads.items():
                if partition not in self._away:
                    self._sample(partition, head)
                if self._sampled:
                    break
        return self._row_bytes

    def _saw(self, payload_bytes: int, rows: int) -> None:
        """Add the size of sampled records to the running averages."""
        self._row_bytes += SMOOTHING * (payload_bytes / rows - self._row_bytes)
        self._sampled = True

    def close(self) -> None:
        """Close the connections; subscriptions stay."""
        self._connections.close()

    def patiently(self, what: str, work: Callable[[], Awaitable[T]], most_s: float = math.inf) -> T:
        """Return the result of ``work``, tried again after passing errors within the query's patience.

        Waits at most ``most_s`` seconds. Brokers restart, and Spark ends a stream that raises.
        """
        return self._connections.run(self._try(what, work, most_s))

    async def _try(self, what: str, work: Callable[[], Awaitable[T]], most_s: float) -> T:
        options = self._options
        until = time.monotonic() + min(options.patience_s, most_s)
        backoff = Backoff(first_s=options.retry_s, most_s=MOST_BACKOFF_S)
        while True:
            try:
                return await work()
            except FastwireError as exc:
                if isinstance(exc, DataLossError) or self._hopeless(exc):
                    raise
                if time.monotonic() >= until and backoff.failures >= options.retries:
                    raise FastwireError(f"{what}: {exc}") from None
                if backoff.failures == options.retries:
                    logger.warning("%s: %s; retrying", what, exc)
            await asyncio.sleep(backoff.next())
