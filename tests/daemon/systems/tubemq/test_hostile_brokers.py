"""TubeMQ servers whose answers cannot be right: the producer survives each of them and loses nothing."""

import asyncio

import pytest

from fastwire.tubemq.format.frame import Method
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.systems.produced import ProduceError
from tests.daemon.systems.tubemq.test_producer import each, producing, write
from tests.support.hostile.tubemq import BYTES, REFUSALS, SILENT, Lie, lying

LIES = (*BYTES, *SILENT, *REFUSALS)


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_what_a_producer_is_told_of_a_message(broker: TubeMQDevBroker, lie: Lie) -> None:
    liar = lying(broker, Method.SEND, lie)
    await write(broker, 20)
    assert liar.left == 0
    assert each(broker) == list(range(20))


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_what_a_producer_is_told_of_the_partitions(broker: TubeMQDevBroker, lie: Lie) -> None:
    """The partitions that it knows stay, and it learns of a new one from the next answer."""
    async with producing(broker) as producer:
        liar = lying(broker, Method.PRODUCER_HEARTBEAT, lie)
        broker.grow_topic("t", 3)
        while len(producer.client.partitions("t")) < 3:
            await asyncio.sleep(0.01)
    assert liar.left == 0


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
async def test_what_a_producer_is_told_at_first(broker: TubeMQDevBroker, lie: Lie) -> None:
    """Opening fails, and says why; the next one goes well."""
    liar = lying(broker, Method.PRODUCER_REGISTER, lie)
    with pytest.raises(ProduceError, match=r"^t: "):
        async with producing(broker):
            pass
    assert liar.left == 0
    await write(broker, 2)
    assert each(broker) == [0, 1]
