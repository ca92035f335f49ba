"""Records of the command ``produce`` in TubeMQ."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from fastwire.columns.rows import Rows
from fastwire.tubemq.names import parse_master_url
from fastwire.tubemq.protocol.request import message_time
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.tubemq.config import TubeMQConnection
from fastwire_daemon.systems.tubemq.writer import open_writer
from fastwire_daemon.systems.writer import Put, WriteOptions


@pytest.fixture
def broker() -> Iterator[TubeMQDevBroker]:
    with running(TubeMQDevBroker(TubeMQOptions(message_bytes=1000))) as broker:
        broker.create_topic("t", 2)
        yield broker
    assert broker.violations == []


def connection(broker: TubeMQDevBroker) -> TubeMQConnection:
    return TubeMQConnection.model_construct(url=parse_master_url(broker.url))


def stored(broker: TubeMQDevBroker) -> list[tuple[int, int, bytes]]:
    """BrokerPartition, flag and payload of each message, in the order of the store."""
    (store,) = broker.topics["t"].stores
    return [(one.partition, one.flag, one.payload) for one in store.messages]


async def test_records_become_messages(broker: TubeMQDevBroker) -> None:
    async with open_writer(connection(broker), "t", WriteOptions()) as writer:
        properties = (("k", "v=w"), ("$msgType$", "aaa"))
        await writer.write(Put(b"a", properties=properties, event_time=1767240000000, partition=1))
        await writer.write(Put(b"", partition=0))
        await writer.write(Put(b"plain", partition=0))
        await writer.flush()
        assert (writer.topic, writer.produced.records, writer.produced.bytes) == ("t", 3, 6)
    text = b"$msgType$=aaa,$msgTime$=202601011200,k=v=w"
    assert sorted(stored(broker)) == [
        (0, 0, b"plain"), (0, 1, bytes(4)), (1, 1, len(text).to_bytes(4) + text + b"a"),
    ]  # fmt: skip
    (store,) = broker.topics["t"].stores
    assert [one.type for one in store.messages if one.partition] == ["aaa"]  # by which filters choose


async def test_a_message_that_is_copied_has_its_time_twice(broker: TubeMQDevBroker) -> None:
    async with open_writer(connection(broker), "t", WriteOptions()) as writer:
        attributes = (("$msgTime$", "202601011200"),)
        await writer.write(Put(b"a", properties=attributes, event_time=1767240000000, partition=1))
    text = b"$msgTime$=202601011200"
    assert stored(broker) == [(1, 1, len(text).to_bytes(4) + text + b"a")]


async def test_event_times_of_rows_are_cut_to_minutes_and_counted(broker: TubeMQDevBroker) -> None:
    """Or a topic of another system could not be copied into one of TubeMQ."""
    noon = 1767240000_000_000
    times = [noon, noon + 1, noon + 59_999_999, noon - 1, None, -1, noon + 60_000_000]
    cut = [noon, noon, noon, noon - 60_000_000, None, -60_000_000, noon + 60_000_000]
    rows = Rows(
        pa.record_batch(
            {"value": pa.array([b"v"] * len(times)), "eventTime": pa.array(times, pa.timestamp("us", "UTC"))}
        )
    )
    async with open_writer(connection(broker), "t", WriteOptions()) as writer:
        await writer.write_rows(rows)
    texts = [message_time(each // 1000).encode() for each in cut if each is not None]
    landed = [payload for _, _, payload in stored(broker)]
    assert sorted(each[-13:-1] for each in landed if len(each) > 5) == sorted(texts)
    assert rows.changed_times == 4


async def test_a_load_goes_round_the_partitions(broker: TubeMQDevBroker) -> None:
    load = Load(records=100)
    async with open_writer(connection(broker), "t", WriteOptions(batch=30)) as writer:
        assert sum([count async for count in writer.generate(load)]) == 100
    assert stored(broker) == [(number % 2, 0, load.record(number)) for number in range(100)]


@pytest.mark.parametrize(
    ("put", "lacks"),
    [
        (Put(None), "no null values"),
        (Put(b"", key="k"), 'no "key"'),
        (Put(b"", ordering_key=b"k"), 'no "ordering_key"'),
        (Put(b"", properties=(("a", "1"), ("a", "2"))), "one property of a name"),
        (Put(b"", properties=(("a=b", "1"),)), "attribute 'a=b'"),
        (Put(b"", properties=(("$msgTime$", "202601011200"),), event_time=60_000), "is given, too"),
        (Put(b"", event_time=60_001), "whole minutes"),
        (Put(bytes(1001)), "a message of 1001 bytes: t stores 1000 at most"),
        (Put(bytes(996), properties=(("a", "1"),)), "a message of 1003 bytes: t stores 1000 at most"),
    ],
)
async def test_what_tubemq_does_not_have(broker: TubeMQDevBroker, put: Put, lacks: str) -> None:
    async with open_writer(connection(broker), "t", WriteOptions()) as writer:
        with pytest.raises(ValueError, match=lacks):
            await writer.write(put)
        await writer.write(Put(b"next", partition=0))
    assert stored(broker) == [(0, 0, b"next")]


async def test_options_that_tubemq_does_not_have(broker: TubeMQDevBroker) -> None:
    for options, lacks in (
        (WriteOptions(compression="ZSTD"), "TubeMQ has no zstd: none"),
        (WriteOptions(public_keys={"k": b""}), "no encryption"),
        (WriteOptions(create=2), "created by the brokers, or by the tools of TubeMQ"),
    ):
        with pytest.raises(ValueError, match=lacks):
            open_writer(connection(broker), "t", options)
