"""Finding messages again that were written to a topic of TubeMQ."""

import asyncio

from ..reading.clusterrecall import ClusterRecall

SETTLE_S = 10.0  # for requests that a lost producer had on their way


class TubeMQRecall(ClusterRecall):
    """Implementation of ``Recall`` for TubeMQ, whose Brokers do not know producers."""

    async def fence(self, sender: str) -> None:
        """Wait for requests that are on their way."""
        await asyncio.sleep(SETTLE_S)
