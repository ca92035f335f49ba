"""Transactions of one transactional id, at a coordinator whose answers the test gives."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from fastwire_daemon.systems.kafka.transactions import Transactions


class Coordinator:
    """Holds each request until ``answer``."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = asyncio.Queue()

    async def transaction_coordinator(self, name: str) -> Any:
        return SimpleNamespace(ask=self._ask)

    async def _ask(self, key: object, body: dict[str, Any]) -> dict[str, Any]:
        held: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((body, held))
        return await held

    async def answer(self) -> None:
        body, held = await self.asked.get()
        done = [
            {
                "name": topic["name"],
                "partitions": [{"partition_index": one, "error_code": 0} for one in topic["partitions"]],
            }
            for topic in body["topics"]
        ]
        held.set_result({"results": done})


async def test_a_partition_may_come_in_the_moment_in_which_others_have_been_added() -> None:
    coordinator = Coordinator()
    transactions = Transactions(cast(Any, coordinator), "t", 60_000)
    first = asyncio.create_task(transactions.join(("orders", 0)))
    await coordinator.answer()
    # The next one begins right behind the end of that request.
    identities = await asyncio.gather(first, transactions.join(("orders", 1)), coordinator.answer())
    assert list(identities) == [(-1, -1), (-1, -1), None]
