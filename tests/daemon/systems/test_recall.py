"""Records that are found again: ends of partitions, what stands behind them, and what is not there any more."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from fastwire.kafka.format.error import Code
from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire.kafka.protocol.connection import Key
from fastwire.position import Log, Position
from fastwire_daemon.config import parse_connection
from fastwire_daemon.devbroker.base import DevBroker, dev_broker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.recall import Recall, RecordsGone
from fastwire_daemon.systems.registry import recall_of, system_named
from fastwire_daemon.systems.writer import Put, WriteOptions

TOPIC = "mended"


def serving(broker: DevBroker) -> Iterator[DevBroker]:
    with running(broker):
        broker.create_topic(TOPIC, 2)
        yield broker


@pytest.fixture(params=["kafka", "pulsar", "tubemq"])
def broker(request: pytest.FixtureRequest) -> Iterator[DevBroker]:
    yield from serving(dev_broker(request.param))


@pytest.fixture
def kafka() -> Iterator[DevBroker]:
    yield from serving(dev_broker("kafka"))


def of(broker: DevBroker) -> Recall:
    found = recall_of(parse_connection({"url": broker.url}), TOPIC)
    assert found is not None
    return found


async def write(broker: DevBroker, *names: str, partition: int = 0, sender: str = "") -> None:
    async with opened(broker, sender) as writer:
        for name in names:
            await writer.write(Put(name.encode(), properties=(("n", name),), partition=partition))


def opened(broker: DevBroker, sender: str = "") -> Any:
    system = system_named(broker.scheme)
    return system.open_writer(
        parse_connection({"url": broker.url}), TOPIC, WriteOptions(name=sender, resend=not sender, batch=10)
    )


async def names(chunks: AsyncIterator[Any]) -> list[str]:
    found = []
    async for chunk in chunks:
        if chunk.rows:
            for headers in pa.record_batch(chunk)["headers"].to_pylist():
                found += [header["value"].decode() for header in headers or () if header["key"] == "n"]
        chunk.release()
    return sorted(found)


async def test_what_stands_behind_the_ends(broker: DevBroker) -> None:
    recall = of(broker)
    empty = await recall.ends()
    assert sorted(log.partition for log in empty) in (["0", "1"], ["1:0", "1:1"])
    assert await names(recall.behind(empty)) == []
    await write(broker, "a", "b")
    await write(broker, "c", partition=1)
    ends = await recall.ends()
    assert await names(recall.behind(empty)) == ["a", "b", "c"]
    await write(broker, "d", "e")
    found = await names(recall.behind(ends))
    assert found == (["a", "b", "c", "d", "e"] if broker.scheme == "pulsar" else ["d", "e"])  # with the last entries


async def test_a_partition_that_is_new_is_read_from_its_beginning(kafka: DevBroker) -> None:
    recall = of(kafka)
    await write(kafka, "a")
    ends = await recall.ends()
    kafka.grow_topic(TOPIC, 3)
    await write(kafka, "b", partition=2)
    assert await names(recall.behind(ends)) == ["b"]


async def test_an_open_transaction_hides_nothing(kafka: Any) -> None:
    recall = of(kafka)
    ends = await recall.ends()
    sequence: Any = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    kafka.append(TOPIC, [encode_batch([Record(value=b"x")], transactional=True, **sequence)])
    await write(kafka, "a")
    assert await names(recall.behind(ends)) == ["a"]
    assert sorted((await recall.ends()).values()) == [Position(0, -1), Position(2, -1)]


async def test_records_that_were_deleted(kafka: Any) -> None:
    recall = of(kafka)
    await write(kafka, "a")
    ends = await recall.ends()
    await write(kafka, "b", "c")
    kafka.trim(TOPIC, 1)
    assert await names(recall.behind(ends)) == ["b", "c"]  # those before the ends do not matter
    kafka.trim(TOPIC, 2)
    with pytest.raises(RecordsGone, match="deleted by retention"):
        await names(recall.behind(ends))


async def test_messages_that_were_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind the ends, and then all: a broker may name a last message that it does not have."""
    monkeypatch.setattr("fastwire_daemon.systems.pulsar.recall.SILENT_S", 1.0)
    broker: Any = PulsarDevBroker(PulsarOptions(ledger_entries=1))
    for _ in serving(broker):
        recall = of(broker)
        await write(broker, "a")
        ends = await recall.ends()
        for name in "bc":
            await write(broker, name)
        partition = f"persistent://public/default/{TOPIC}-partition-0"
        log = broker.topics[partition].log
        broker.trim(partition, *log.ledgers.position(2))
        with pytest.raises(RecordsGone, match="has no message"):
            await names(recall.behind(ends))
        ledger, entry = log.ledgers.position(2)
        broker.trim(partition, ledger, entry + 1)
        with pytest.raises(RecordsGone, match="has sent no message"):
            await names(recall.behind(ends))


async def test_a_log_that_has_become_shorter(kafka: Any) -> None:
    recall = of(kafka)
    await write(kafka, "a")
    await write(kafka, "b")
    ends = await recall.ends()
    kafka.truncate(TOPIC, 1)
    with pytest.raises(RecordsGone, match="the leader's log ends at 1"):
        await names(recall.behind(ends))


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
async def test_a_topic_that_was_made_again(system: str) -> None:
    for broker in serving(dev_broker(system)):
        recall = of(broker)
        await write(broker, "a", partition=1)
        ends = await recall.ends()
        broker.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 2)
        await write(broker, "b", "c", partition=1)
        with pytest.raises(RecordsGone, match="created again"):
            await names(recall.behind(ends))


async def test_a_ledger_that_is_full_is_no_loss() -> None:
    """The last message from before closes a ledger, stands within one, and is the only one."""
    for broker in serving(PulsarDevBroker(PulsarOptions(ledger_entries=2))):
        recall = of(broker)
        written: list[str] = []
        marks: list[Mapping[Log, Position]] = []
        for name in "abcdefg":
            marks.append(await recall.ends())
            await write(broker, name)
            written.append(name)
        for count, ends in enumerate(marks):
            found = await names(recall.behind(ends))
            assert found == written[max(count - 1, 0) :]  # with the one that it was recognized by


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
async def test_a_fenced_writer_stores_nothing_more(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulsar's broker refuses the fence while the former writer is connected."""
    monkeypatch.setattr("fastwire_daemon.systems.pulsar.recall.SETTLE_S", 0.0)
    for broker in serving(dev_broker(system)):
        recall = of(broker)
        ends = await recall.ends()
        former = opened(broker, "former")
        writer = await former.__aenter__()
        await writer.write(Put(b"a", properties=(("n", "a"),), partition=0))
        await writer.flush()
        if system == "pulsar":
            fence = asyncio.create_task(recall.fence("former"))
            await asyncio.wait([fence], timeout=1.0)
            assert not fence.done()
            await former.__aexit__(None, None, None)
            await fence
        else:
            await recall.fence("former")
            await writer.write(Put(b"b", properties=(("n", "b"),), partition=0))
            with pytest.raises(ProduceError, match="another process has fenced this producer"):
                await writer.flush()
            await former.__aexit__(ValueError, None, None)
        assert await names(recall.behind(ends)) == ["a"]


async def test_a_cluster_without_transactions(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer stores records all the same; instead of a fence there is a pause."""
    monkeypatch.setattr("fastwire_daemon.systems.kafka.fence.COORDINATOR_S", 0.3)
    monkeypatch.setattr("fastwire_daemon.systems.reading.clusterrecall.SETTLE_S", 0.5)
    find = kafka.handlers[Key.FIND_COORDINATOR]

    def without(connection: Any, request: Any) -> Any:
        if request.body.get("key_type") == 1:
            refused = {"error_code": Code.COORDINATOR_NOT_AVAILABLE, "node_id": -1, "host": "", "port": -1}
            return {**refused, "coordinators": [{**refused, "key": key} for key in request.body["coordinator_keys"]]}
        return find(connection, request)

    kafka.handlers = {**kafka.handlers, Key.FIND_COORDINATOR: without}
    recall = of(kafka)
    ends = await recall.ends()
    await write(kafka, "a", sender="former")
    began = asyncio.get_running_loop().time()
    await recall.fence("former")
    assert asyncio.get_running_loop().time() - began >= 0.5
    assert await names(recall.behind(ends)) == ["a"]


def test_a_system_without_properties_finds_nothing_again() -> None:
    assert recall_of(parse_connection({"url": "tank://127.0.0.1"}), TOPIC) is None
