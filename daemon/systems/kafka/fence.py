"""Fencing of a producer by its name, without transactions around its records (spec: kafka 14).

Each partition has a transactional id, so that the coordinator gives its producer an epoch. A later process begins an
empty transaction in the next epoch, which the coordinator aborts: the marker, which no reader sees, stands behind all
records of the former process in the log, and the leader refuses those that come after it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastwire.errors import FastwireError
from fastwire.kafka.format.error import RETRY, BrokerError, Code
from fastwire.kafka.protocol.connection import Key
from fastwire.producer import TransactionLost

from ...net.backoff import Backoff
from ...runtime.logs import get_logger
from ..ledger import LedgerRefused
from .cluster import Cluster

PATIENCE_S = 30.0
COORDINATOR_S = 10.0  # at first use a cluster makes the topic of the coordinators
TIMEOUT_MS = 60_000
TOGETHER = 16  # partitions

T = TypeVar("T")

log = get_logger("producer")


def fenced_name(sender: str, partition: int) -> str:
    """Return the transactional id of the producer of one partition."""
    return f"fastwire-{sender}-{partition}"


async def can_fence(cluster: Cluster, sender: str) -> bool:
    """Return True if the cluster has a coordinator of transactions for this client. Raises FastwireError."""
    try:
        await patiently(lambda: identify(cluster, f"fastwire-{sender}"), COORDINATOR_S)
    except BrokerError as exc:
        log.warning(
            "the cluster lets this client have no transactional id: requests of a killed process cannot be fenced",
            error=str(exc),
        )
        return False
    return True


async def identify(cluster: Cluster, name: str) -> tuple[int, int]:
    """Return producer id and epoch for a transactional id: the epoch is 0 at its first use. Raises FastwireError."""
    link = await cluster.transaction_coordinator(name)
    answer = await link.ask(Key.INIT_PRODUCER_ID, {"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS})
    if answer["error_code"]:
        raise BrokerError(answer["error_code"], f"transactional id {name}")
    return answer["producer_id"], answer["producer_epoch"]


async def fence(cluster: Cluster, topic: str, sender: str) -> None:
    """Return when the leaders of ``topic`` refuse all records of ``sender``. Raises FastwireError."""
    await cluster.refresh([topic])
    known = cluster.metadata.topics.get(topic)
    if known is None or known.error:
        raise BrokerError(Code.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error, topic)
    gate = asyncio.Semaphore(TOGETHER)

    async def one(partition: int) -> None:
        async with gate:
            await _fence(cluster, topic, partition, fenced_name(sender, partition))

    await asyncio.gather(*map(one, sorted(known.leaders)))


async def _fence(cluster: Cluster, topic: str, partition: int, name: str) -> None:
    producer_id, epoch = await patiently(lambda: identify(cluster, name))
    if epoch == 0:
        return  # the former process has never had it
    owner = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}

    async def begin() -> None:
        link = await cluster.transaction_coordinator(name)
        topics = [{"name": topic, "partitions": [partition]}]
        answer = await link.ask(Key.ADD_PARTITIONS_TO_TXN, {**owner, "topics": topics})
        for code in (one["error_code"] for about in answer["results"] for one in about["partitions"]):
            if code:
                raise BrokerError(code, f"transactional id {name}")

    await patiently(begin)
    # The coordinator aborts what is open, and gives no other epoch until the marker is written.
    await patiently(lambda: identify(cluster, name))


async def patiently(ask: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """Return what ``ask`` returns, called again for a while after errors that pass. Raises FastwireError."""
    backoff = Backoff(most_s=1.0)
    now = asyncio.get_running_loop().time
    give_up_at = now() + patience_s
    while True:
        try:
            return await ask()
        except FastwireError as exc:
            for_good = isinstance(exc, TransactionLost | LedgerRefused)
            for_good |= isinstance(exc, BrokerError) and exc.code not in RETRY
            if for_good or now() >= give_up_at:
                raise
        await asyncio.sleep(backoff.next())
