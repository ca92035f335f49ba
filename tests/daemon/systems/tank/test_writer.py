"""Records of the command ``produce`` in TANK."""

from collections.abc import Iterator

import pytest

from fastwire.tank.names import parse_tank_url
from fastwire.tank.producing.bundle import Message, read_messages
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.tank.config import TankConnection
from fastwire_daemon.systems.tank.writer import open_writer
from fastwire_daemon.systems.writer import Put, WriteOptions


@pytest.fixture
def broker() -> Iterator[TankDevBroker]:
    with running(TankDevBroker()) as broker:
        broker.create_topic("t", 2)
        yield broker
    assert broker.violations == []


def connection(broker: TankDevBroker) -> TankConnection:
    return TankConnection.model_construct(url=parse_tank_url(broker.url))


def stored(broker: TankDevBroker, partition: int, topic: str = "t") -> list[Message]:
    bundles = broker.topics[topic][partition].bundles
    return [one for bundle in bundles for one in read_messages(bundle.data, bundle.head)]


async def test_records_become_messages(broker: TankDevBroker) -> None:
    async with open_writer(connection(broker), "t", WriteOptions()) as writer:
        await writer.write(Put(b"a", key="ä", event_time=77, partition=1))
        await writer.write(Put(b"", key=b"\xff", event_time=78, partition=1))
        await writer.flush()
        assert (writer.topic, writer.produced.records, writer.produced.entries) == ("t", 2, 2)
    assert stored(broker, 1) == [
        Message(value=b"a", key="ä".encode(), timestamp=77, sequence=1),
        Message(value=b"", key=b"\xff", timestamp=78, sequence=2),
    ]


async def test_a_load_goes_round_the_partitions(broker: TankDevBroker) -> None:
    load = Load(records=100)
    async with open_writer(connection(broker), "t", WriteOptions(batch=30)) as writer:
        assert sum([count async for count in writer.generate(load)]) == 100
    assert [one.value for one in stored(broker, 0)] == [load.record(number) for number in range(0, 100, 2)]
    assert [one.value for one in stored(broker, 1)] == [load.record(number) for number in range(1, 100, 2)]


@pytest.mark.parametrize(
    ("put", "lacks"),
    [
        (Put(None), "no null values"),
        (Put(b"", properties=(("a", "b"),)), 'no "properties"'),
        (Put(b"", ordering_key=b"k"), 'no "ordering_key"'),
        (Put(b"", key="k" * 256), "a key of 256 bytes: TANK has room for 255"),
    ],
)
async def test_what_tank_does_not_have(broker: TankDevBroker, put: Put, lacks: str) -> None:
    async with open_writer(connection(broker), "t", WriteOptions()) as writer:
        with pytest.raises(ValueError, match=lacks):
            await writer.write(put)
        await writer.write(Put(b"next", partition=0))
    assert [one.value for one in stored(broker, 0)] == [b"next"]


@pytest.mark.parametrize(
    ("compression", "value", "codec"),
    [(None, b"x" * 1024, 0), (None, b"x" * 1025, 1), ("NONE", b"x" * 4096, 0), ("SNAPPY", b"x", 1)],
)
async def test_compression(broker: TankDevBroker, compression: str | None, value: bytes, codec: int) -> None:
    async with open_writer(connection(broker), "t", WriteOptions(compression=compression)) as writer:
        await writer.write(Put(value, partition=0))
    (bundle,) = broker.topics["t"][0].bundles
    assert bundle.head.codec == codec


async def test_options_that_tank_does_not_have(broker: TankDevBroker) -> None:
    with pytest.raises(ValueError, match="TANK has no zstd: none, snappy"):
        open_writer(connection(broker), "t", WriteOptions(compression="ZSTD"))
    with pytest.raises(ValueError, match="no encryption"):
        open_writer(connection(broker), "t", WriteOptions(public_keys={"k": b""}))


async def test_a_topic_is_created_when_the_options_say_so(broker: TankDevBroker) -> None:
    with pytest.raises(ProduceError, match="unknown topic"):
        async with open_writer(connection(broker), "new", WriteOptions()):
            pass
    async with open_writer(connection(broker), "new", WriteOptions(create=2)) as writer:
        await writer.write(Put(b"a", partition=1))
    assert [one.value for one in stored(broker, 1, "new")] == [b"a"]
