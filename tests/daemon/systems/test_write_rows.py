"""Batches of rows give the very bytes that the same records give one by one, with any limits, and on any partition."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastwire.columns.rows import Rows
from fastwire.kafka.format.error import Code
from fastwire.kafka.producing.partitioner import Partitioner
from fastwire.kafka.producing.payload import Compression
from fastwire.kafka.producing.producer import Producer as KafkaMachine
from fastwire.kafka.producing.producer import ProducerSettings as KafkaSettings
from fastwire.kafka.producing.producer import weight as kafka_weight
from fastwire.producer import BatchLimits
from fastwire.pulsar.format.payload import Compression as PulsarCompression
from fastwire.pulsar.producing.batcher import Batching
from fastwire.pulsar.producing.batcher import BatchLimits as PulsarLimits
from fastwire.pulsar.producing.batcher import weight as pulsar_weight
from fastwire.pulsar.producing.producer import Producer as PulsarMachine
from fastwire.pulsar.producing.router import Hashing, Router
from fastwire.pulsar.producing.settings import ProducerSettings as PulsarSettings
from fastwire.tank.format.error import ProduceCode
from fastwire.tank.producing.partitioner import Partitioner as TankPartitioner
from fastwire.tank.producing.producer import Producer as TankMachine
from fastwire.tank.producing.producer import ProducerSettings as TankSettings
from fastwire.tank.producing.producer import weight as tank_weight
from fastwire_daemon.client import connect
from fastwire_daemon.config import parse_connection
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.systems.kafka import writer as kafka_writer
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.producing import topicwriter
from fastwire_daemon.systems.producing.topicwriter import Part, TopicWriter
from fastwire_daemon.systems.pulsar import writer as pulsar_writer
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.tank import writer as tank_writer
from fastwire_daemon.systems.writer import Put, WriteOptions
from tests.support.spark_scene import SCENES
from tests.support.times import LAST_MILLI

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
texts = st.text(st.characters(codec="utf-8"), max_size=8)
ascii_texts = st.text(st.characters(codec="ascii"), max_size=8)


class Unconnected(TopicWriter[Any, Any, Any]):
    """A topic whose partitions have state machines and no brokers."""

    settings: Any
    hashing: Any
    _own_key: Any

    def __init__(self, machines: list[Any], chooser: Any, weigh: Any) -> None:
        super().__init__("t", chooser, most_pending_bytes=1 << 40)
        self._parts = [UnconnectedPart(machine) for machine in machines]
        self._weight = weigh

    def _key(self, record: Any) -> Any:
        return record.key

    def _weigh(self, record: Any) -> int:
        found: int = self._weight(record)
        return found

    async def open(self) -> None:
        raise NotImplementedError

    async def _count(self) -> int:
        raise NotImplementedError

    async def _add(self, number: int) -> Any:
        raise NotImplementedError


class UnconnectedPart(Part[Any]):
    async def _run(self) -> None:
        raise NotImplementedError

    def _moved(self) -> None:
        pass

    @property
    def _when(self) -> tuple[Any, ...]:
        return (1.0, NOW_MS) if isinstance(self.machine, PulsarMachine) else (1.0,)

    def send(self, record: Any, ticket: object) -> None:
        self.machine.send(record, ticket, *self._when)

    def send_rows(self, routes: Any, first: int, stop: int) -> None:
        self.machine.send_rows(routes, first, stop, *self._when)


def kafka(case: dict[str, Any]) -> tuple[Any, list[KafkaMachine]]:
    limits = BatchLimits(records=case["records"], bytes=case["bytes"])
    machines = [
        KafkaMachine(KafkaSettings(batching=limits, compression=Compression(case["codec"])))
        for _ in range(case["partitions"])
    ]
    topic = Unconnected(machines, Partitioner(len(machines)), kafka_weight)
    return kafka_writer.KafkaWriter(topic), machines  # type: ignore[arg-type]


def kafka_bytes(machine: KafkaMachine) -> list[bytes]:
    """All batches as they are sent; the broker takes the first one of several records only in halves."""
    machine.flush()
    found: list[bytes] = []
    halve = True
    while True:
        if machine.needs_identity:
            machine.identify(7, 0)
        sending = machine.take(2.0)
        if sending is None:
            break
        found.append(sending.data)
        large = halve and len(sending.batch.records) > 1
        halve = halve and not large
        machine.answered(sending, Code.MESSAGE_TOO_LARGE if large else Code.NONE, 0, 2.0)
    assert (machine.weight, machine.idle) == (0, True)
    return found


def pulsar(case: dict[str, Any]) -> tuple[Any, list[PulsarMachine]]:
    chosen = PulsarSettings(
        batching=PulsarLimits(messages=case["records"], bytes=case["bytes"], keys=case["keys"]),
        compression=PulsarCompression(case["codec"]),
        chunking=True,
    )
    machines = []
    for number in range(case["partitions"]):
        machine = PulsarMachine("t", number, chosen)
        machine._named, machine.name, machine._encoder.largest = True, "me", case["largest"]
        machines.append(machine)
    hashing = Hashing.MURMUR3 if case["murmur3"] else Hashing.JAVA
    topic = Unconnected(machines, Router(len(machines), hashing=hashing), pulsar_weight)
    topic.settings, topic.hashing = chosen, hashing
    return pulsar_writer.PulsarWriter(topic), machines  # type: ignore[arg-type]


def pulsar_bytes(machine: PulsarMachine) -> list[bytes]:
    machine.flush()
    found = [entry.body for entry, _ in machine._pending]
    assert machine.weight == sum({id(message): message.weight for _, message in machine._pending}.values())
    return found


def tank(case: dict[str, Any]) -> tuple[Any, list[TankMachine]]:
    limits = BatchLimits(records=case["records"], bytes=case["bytes"])
    chosen = TankSettings(batching=limits, numbered=case["murmur3"], compress=(None, True, False)[case["codec"] % 3])
    machines = [TankMachine(chosen) for _ in range(case["partitions"])]
    topic = Unconnected(machines, TankPartitioner(len(machines)), tank_weight)
    return tank_writer.TankWriter(topic), machines  # type: ignore[arg-type]


def tank_bytes(machine: TankMachine) -> list[bytes]:
    machine.flush()
    if machine.needs_sequence:
        machine.number(5)
    found: list[bytes] = []
    while (sending := machine.take(2.0)) is not None:
        found.append(sending.data)
        machine.answered(ProduceCode.STORED, 2.0)
    assert (machine.weight, machine.idle) == (0, True)
    return found


SYSTEMS: dict[str, tuple[Any, Any]] = {
    "kafka": (kafka, kafka_bytes),
    "pulsar": (pulsar, pulsar_bytes),
    "tank": (tank, tank_bytes),
}


@st.composite
def cases(draw: st.DrawFn, system: str) -> dict[str, Any]:
    size = draw(st.integers(1, 30))
    keys = draw(st.sampled_from([Batching.MIXED, Batching.KEY]))
    # A key that ends a batch turns later rows without a key to another partition only at the end of a step.
    partitions = draw(st.integers(1, 4)) if keys is Batching.MIXED else 1
    header_values = st.binary(max_size=6) | st.none() if system == "kafka" else ascii_texts.map(str.encode)
    key_kind = draw(st.sampled_from(["text", "bytes", "text or bytes"]))
    # Weights count characters where rows count bytes, so only texts in ASCII end batches at the very same record.
    exact = draw(st.booleans())
    key_cells = (ascii_texts if exact else texts) if key_kind == "text" else st.binary(max_size=8)

    def column(cells: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        empty = draw(st.booleans())
        cells = st.none() if empty else st.none() | cells
        return pa.array(draw(st.lists(cells, min_size=size, max_size=size)), kind)

    columns = {"value": column(st.binary(max_size=60), pa.binary())}
    if system == "tank":
        columns["value"] = columns["value"].fill_null(b"")
    columns["key"] = column(key_cells, pa.string() if key_kind == "text" else pa.binary())
    headers = st.lists(st.tuples(ascii_texts if exact else texts, header_values), max_size=0 if system == "tank" else 3)
    columns["headers"] = column(headers, HEADERS)
    columns["partition"] = column(st.integers(0, partitions - 1), pa.int32())
    micros = st.integers(-5_000, 1 << 50) | st.integers(-LAST_MILLI * 1000, LAST_MILLI * 1000)
    if system == "tank":  # a record has whole milliseconds, and TANK may have a row's microseconds
        micros = micros.map(lambda micro: micro // 1000 * 1000)
    columns["eventTime"] = column(micros, pa.timestamp("us"))
    if system == "pulsar":
        columns["orderingKey"] = column(st.binary(max_size=5), pa.binary())
    batch = pa.record_batch(columns)
    return {
        "batches": [batch.slice(0, size // 3), batch.slice(size // 3)],
        "text_keys": key_kind == "text or bytes",
        "partitions": partitions,
        "keys": keys,
        "records": draw(st.integers(1, 6)),
        "bytes": draw(st.integers(1, 400)) if exact else 1 << 20,
        "codec": draw(st.integers(0, 4)),
        "murmur3": draw(st.booleans()),
        "largest": draw(st.integers(300, 1000)),
        "turn": draw(st.sampled_from([1, 150, 1 << 18])),
    }


def written(system: str, case: dict[str, Any], *, by_rows: bool) -> list[list[bytes]]:
    """Return the batches that each partition sends."""
    make, read = SYSTEMS[system]

    async def write() -> list[list[bytes]]:
        writer, machines = make(case)
        for batch in case["batches"]:
            rows = Rows(batch, text_keys=case["text_keys"])
            if by_rows:
                await writer.write_rows(rows)
            else:
                for row in range(len(rows)):
                    await writer.write(Put(*rows.record(row)))
        assert writer._producer._pending_bytes == sum(machine.weight for machine in machines)
        return [read(machine) for machine in machines]

    return asyncio.run(write())


@pytest.mark.parametrize("system", SYSTEMS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_rows_give_the_bytes_of_records(system: str, data: st.DataObject) -> None:
    case = data.draw(cases(system))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topicwriter, "TURN_BYTES", case["turn"])
        for module in (kafka_writer, pulsar_writer, tank_writer):
            patch.setattr(module, "now_ms", lambda: NOW_MS)
        assert written(system, case, by_rows=True) == written(system, case, by_rows=False)


@pytest.mark.parametrize("system", SCENES)
async def test_a_topic_holds_the_same_records_either_way(system: str) -> None:
    scene = SCENES[system]()
    columns = {
        "value": pa.array([b"%d" % number for number in range(5_000)]),
        "key": pa.array([f"k{number % 77}" for number in range(5_000)]),
    }
    if system != "tank":
        columns["headers"] = pa.array([[("n", b"%d" % (number % 3))] for number in range(5_000)], HEADERS)
    batch = pa.record_batch(columns)
    with running(scene.broker):
        connection = parse_connection({"url": scene.url})
        found = []
        for topic in ("rows", "records"):
            scene.create(topic, 3)
            async with system_named(system).open_writer(connection, topic, WriteOptions(batch=100)) as writer:
                if topic == "rows":
                    await writer.write_rows(Rows(batch))
                else:
                    for number, record in enumerate(batch.to_pylist()):
                        headers = [(one["key"], one["value"]) for one in record.get("headers", ())]
                        await writer.write(Put(b"%d" % number, record["key"], headers))
                await writer.flush()
                assert writer.produced.records == 5_000
                beyond = pa.record_batch({"value": pa.array([b""]), "partition": pa.array([3], pa.int32())})
                with pytest.raises(ProduceError, match="has no partition 3: there are 3"):
                    await writer.write_rows(Rows(beyond))
            async with connect(scene.url).read(topic, "earliest") as reader:
                rows = [row async for chunk in reader.up_to_now() for row in pa.record_batch(chunk).to_pylist()]
            parts: dict[int, list[Any]] = {}
            for row in rows:
                parts.setdefault(row["partition"], []).append((row["value"], row["key"], row.get("headers")))
            found.append(parts)
        assert len(found[0]) == 3
        assert found[0] == found[1]
    assert scene.broker.violations == []


FAR = 253402300800000 * 1000  # the year 10,000
TIMES = [0, 1_000, 1_700_000_000_123_000, 1_700_000_000_123_456, FAR, FAR * 30, FAR * 30 + 1, LAST_MILLI * 1000]
EARLY = [-1_000, -1_001, -2_000, -FAR, -LAST_MILLI * 1000]
CHANGED: dict[str, dict[int, int | None]] = {
    "kafka": {-1_000: None},  # its number of no time
    "pulsar": {0: None},
    "tank": {-1_000: None, 1_700_000_000_123_456: 1_700_000_000_123_456, FAR * 30 + 1: FAR * 30 + 1},
}


@pytest.mark.parametrize("system", SCENES)
async def test_times_are_read_as_they_were_or_counted(system: str) -> None:
    scene = SCENES[system]()
    given = [*TIMES, *EARLY]
    wanted = [CHANGED[system].get(micros, micros // 1000 * 1000) for micros in given]
    with running(scene.broker):
        scene.create("t", 1)
        batch = pa.record_batch(
            {"value": pa.array([b""] * len(given)), "eventTime": pa.array(given, pa.timestamp("us", "UTC"))}
        )
        async with system_named(system).open_writer(
            parse_connection({"url": scene.url}), "t", WriteOptions()
        ) as writer:
            rows = Rows(batch)
            await writer.write_rows(rows)
        async with connect(scene.url).read("t", "earliest") as reader:
            batches = [pa.record_batch(chunk) async for chunk in reader.up_to_now() if chunk.rows]
    name = "eventTime" if "eventTime" in batches[0].schema.names else "timestamp"
    assert [micros for each in batches for micros in each[name].cast(pa.int64()).to_pylist()] == wanted
    assert rows.changed_times == sum(one != other for one, other in zip(given, wanted, strict=True)) > 0


@pytest.mark.parametrize(("system", "batch"), [*((system, 100) for system in SCENES), ("pulsar", 0)])
async def test_records_and_rows_keep_their_order(system: str, batch: int) -> None:
    scene = SCENES[system]()
    with running(scene.broker):
        scene.create("t", 1)
        connection = parse_connection({"url": scene.url})
        async with system_named(system).open_writer(connection, "t", WriteOptions(batch=batch)) as writer:
            await writer.write(Put(b"a"))
            await writer.write_rows(Rows(pa.record_batch({"value": pa.array([b"b", b"c"])})))
            await writer.write(Put(b"d"))
            await writer.write_rows(Rows(pa.record_batch({"value": pa.array([b"e"])})))
        async with connect(scene.url).read("t", "earliest") as reader:
            chunks = [pa.record_batch(chunk) async for chunk in reader.up_to_now()]
        found = [value for chunk in chunks for value in chunk["value"].to_pylist()]
        assert found == [b"a", b"b", b"c", b"d", b"e"]
    assert scene.broker.violations == []
