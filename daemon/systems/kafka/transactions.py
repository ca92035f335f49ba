"""The transactions of one transactional id at its coordinator (spec: kafka 14.2)."""

import asyncio
from contextlib import suppress

from fastwire.errors import FastwireError
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicPartition
from fastwire.kafka.producing.transaction import (
    ADDING_PRODUCE,
    IMPLICIT_END,
    IMPLICIT_PRODUCE,
    Transaction,
    is_implicit,
)
from fastwire.kafka.protocol.connection import Key

from ...runtime.shared import shared
from .cluster import Cluster
from .fence import identify, patiently

CLOSE_S = 5.0
PATIENCE_S = 60.0  # for what passes: a coordinator that moves, the markers of the transaction before


class Transactions:
    """Begins, extends and commits transactions, one after the other. Raises TransactionLost or FastwireError."""

    def __init__(self, cluster: Cluster, name: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._state = Transaction(name, timeout_ms)
        self._asked: set[TopicPartition] = set()
        self._adding: dict[str, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """The transactional id."""
        return self._state.name

    @property
    def most_produce(self) -> int:
        """The highest version of Produce that the protocol of the brokers allows."""
        return IMPLICIT_PRODUCE if self._state.implicit else ADDING_PRODUCE

    async def open(self) -> None:
        """Fence the former producer of this id, whose transaction is aborted, and begin with a new epoch."""

        async def ask() -> None:
            link = await self._cluster.transaction_coordinator(self.name)
            versions = link.connection.versions
            produce, end = (versions.get(key, (0, 0))[1] for key in (Key.PRODUCE, Key.END_TXN))
            self._state.implicit = is_implicit(link.connection.features, produce, end)
            self._state.identified(await link.ask(Key.INIT_PRODUCER_ID, self._state.identify_request()))

        await patiently(ask, PATIENCE_S)

    async def close(self) -> None:
        """Abort the transaction, so that readers need not wait for its timeout; failures are ignored."""
        if self._state.is_open:
            with suppress(FastwireError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.open()

    async def fence(self, name: str) -> None:
        """Abort the transaction of another transactional id, whose producer can commit nothing afterwards."""
        await patiently(lambda: identify(self._cluster, name), PATIENCE_S)

    async def join(self, place: TopicPartition) -> tuple[int, int]:
        """Make a partition part of the transaction; return producer id and epoch for its batches."""
        while self._state.wants((place,)):
            self._asked.add(place)
            await shared(self._adding, self.name, self._add)
        return self._state.identity

    async def _add(self) -> None:
        await asyncio.sleep(0)  # together with the other partitions of this turn
        asked, self._asked = self._asked, set()

        async def ask() -> None:
            link = await self._cluster.transaction_coordinator(self.name)
            self._state.added(await link.ask(Key.ADD_PARTITIONS_TO_TXN, self._state.add_request(asked)))

        await patiently(ask, PATIENCE_S)

    async def commit(self) -> None:
        """End the transaction; on return its records are visible, or will be soon. Does nothing without records.

        All batches must have been confirmed. After any error the outcome is unknown: what has landed tells.
        """
        if self._state.failure is not None:
            raise self._state.failure.with_traceback(None)
        if not self._state.is_open:
            return

        async def ask() -> Body:
            link = await self._cluster.transaction_coordinator(self.name)
            most = None if self._state.implicit else IMPLICIT_END - 1
            answer = await link.ask(Key.END_TXN, self._state.commit_request(), most=most)
            self._state.committed(answer)
            return answer

        await patiently(ask, PATIENCE_S)

    def lose(self, error: FastwireError) -> None:
        """Note that the transaction cannot be committed."""
        self._state.lose(error)
