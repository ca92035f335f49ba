"""TANK brokers whose answers cannot be right: the producer survives each of them, loses nothing and doubles nothing."""

from collections.abc import Iterator

import pytest

from fastwire.tank.format.error import ProduceCode
from fastwire.tank.format.message import MessageType
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.systems.produced import ProduceError
from tests.daemon.systems.tank.test_producer import each_once, numbers, producing, write
from tests.support.hostile.tank import BYTES, SILENT, Lie, anything, huge_counts, lying

# Any number is a code, and says that the bundle is refused.
BELIEVED = {(MessageType.PRODUCE, huge_counts), (MessageType.PRODUCE, anything)}


@pytest.fixture
def broker() -> Iterator[TankDevBroker]:
    with running(TankDevBroker(TankOptions(nodes=2))) as broker:
        broker.create_topic("t", 2)
        yield broker
    assert broker.violations == []


@pytest.mark.parametrize(
    ("kind", "lie"),
    [
        pytest.param(kind, lie, id=f"{kind.name}-{lie.__name__}")
        for kind in (MessageType.PRODUCE, MessageType.DISCOVER_PARTITIONS)
        for lie in (*BYTES, *SILENT)
        if (kind, lie) not in BELIEVED
    ],
)
async def test_what_a_producer_is_told(broker: TankDevBroker, kind: MessageType, lie: Lie) -> None:
    liars = []

    def deceive(number: int) -> None:
        if number == 100:
            liars.append(lying(broker, kind, lie))
            broker.refuse_bundles(ProduceCode.NO_LEADER)  # so that the leader is asked for

    await write(broker, 200, deceive)
    assert numbers(broker) == each_once(200)
    assert [liar.left for liar in liars] == [0]


@pytest.mark.parametrize("lie", [*BYTES, *SILENT], ids=lambda lie: lie.__name__)
async def test_what_is_told_of_a_new_topic(broker: TankDevBroker, lie: Lie) -> None:
    """Opening fails, and says why; the topic may exist."""
    liar = lying(broker, MessageType.CREATE_TOPIC, lie)
    with pytest.raises(ProduceError, match="new: "):
        async with producing(broker, "new", create=1):
            pass
    assert liar.left == 0
    async with producing(broker, "new", create=1) as producer:
        assert producer.partitions == 1
