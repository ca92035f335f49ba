"""Schemas: asked for by version and kept; what a broker says wrong stays an error."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fastwire.columns.chunk import Chunk
from fastwire.errors import ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import parse_service_url
from fastwire.pulsar.protocol.request import BrokerError
from fastwire.pulsar.protocol.schema import Schema, ask_schema, schema_of, split_key_value, version_number
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker
from fastwire_daemon.systems.pulsar import schemas as module
from fastwire_daemon.systems.pulsar.cluster import Cluster
from fastwire_daemon.systems.pulsar.link import Link
from fastwire_daemon.systems.pulsar.schemas import Schemas
from fastwire_daemon.systems.pulsar.settings import ClientSettings

TOPIC = "persistent://public/default/t"
FIRST, SECOND = b"\0" * 8, b"\0" * 7 + b"\1"


def avro(text: str) -> pb.Schema:
    properties = [pb.KeyValue(key="a", value="b")]
    return pb.Schema(name="Order", type=pb.Schema.Avro, schema_data=text.encode(), properties=properties)


# --- what is said


def test_a_question_names_a_version_or_leaves_it_out() -> None:
    newest = ask_schema(TOPIC)(5).getSchema
    assert (newest.request_id, newest.topic, newest.HasField("schema_version")) == (5, TOPIC, False)
    assert ask_schema(TOPIC, FIRST)(6).getSchema.schema_version == FIRST


def test_an_answer_becomes_a_schema() -> None:
    answer = pb.CommandGetSchemaResponse(request_id=1, schema=avro("{}"), schema_version=SECOND)
    assert schema_of(answer, FIRST) == Schema(SECOND, "AVRO", "Order", b"{}", {"a": "b"})
    answer.ClearField("schema_version")
    assert schema_of(answer, FIRST).version == FIRST


@pytest.mark.parametrize(
    ("number", "kind"), [(0, "BYTES"), (5, "BOOLEAN"), (14, "TIMESTAMP"), (15, "KEY_VALUE"), (20, "PROTOBUF_NATIVE")]
)
def test_kinds_have_their_names(number: int, kind: str) -> None:
    schema = pb.Schema(name="", type=number, schema_data=b"")  # type: ignore[arg-type]
    assert schema_of(pb.CommandGetSchemaResponse(request_id=1, schema=schema)).kind == kind


def test_a_kind_that_is_newer_than_us_keeps_its_number() -> None:
    schema = pb.Schema(name="", type=pb.Schema.External, schema_data=b"")
    assert schema_of(pb.CommandGetSchemaResponse(request_id=1, schema=schema)).kind == "TYPE_22"


def test_key_and_value_are_told_apart() -> None:
    whole = b"\0\0\0\3abc\0\0\0\2de"
    assert split_key_value(whole) == (b"abc", b"de")
    assert split_key_value(b"\xff\xff\xff\xff\0\0\0\0") == (b"", b"")
    for length in range(len(whole)):
        with pytest.raises(ProtocolError):
            split_key_value(whole[:length])
    with pytest.raises(ProtocolError, match="schema of the value at byte 7: needs 2147483647 bytes, 2 are left"):
        split_key_value(b"\0\0\0\3abc\x7f\xff\xff\xffde")


def test_versions_are_numbers_where_they_can_be() -> None:
    assert [version_number(each) for each in (FIRST, SECOND, b"\1\2")] == ["0", "1", "0x0102"]


# --- asked for


class Nobody:
    def on_chunk(self, chunk: Chunk) -> None: ...
    def on_connected(self, link: Link) -> None: ...
    def on_lost(self, link: Link, reason: Exception | None) -> None: ...
    def after_read(self, link: Link) -> None: ...


async def count_requests(broker: PulsarDevBroker, work: Callable[[Schemas], Coroutine[Any, Any, None]]) -> int:
    """Run ``work``; return how many schemas it has requested of the broker."""
    await broker.start()
    broker.create_topic("t", 2)
    service = parse_service_url(broker.url)
    cluster = Cluster(ClientSettings(url=service), SlotTable(), Pool(1 << 24), Nobody())
    try:
        await work(Schemas(cluster, service))
        return sum(
            each.commands.count("GET_SCHEMA") for each in broker.connections if isinstance(each, PulsarConnection)
        )
    finally:
        await cluster.close()
        await broker.stop()
        assert broker.violations == []


def asking(broker: PulsarDevBroker, work: Callable[[Schemas], Coroutine[Any, Any, None]]) -> int:
    """Run ``count_requests`` on a loop of its own."""
    return asyncio.run(count_requests(broker, work))


def test_a_version_is_asked_for_once() -> None:
    broker = PulsarDevBroker()
    assert [broker.register_schema(TOPIC, avro(text)) for text in ("{}", "[]")] == [FIRST, SECOND]

    async def work(schemas: Schemas) -> None:
        found = await asyncio.gather(*(schemas.get(f"{TOPIC}-partition-{index % 2}", FIRST) for index in range(10)))
        assert {each.definition for each in found if each is not None} == {b"{}"}
        newest = await schemas.get("t")
        assert newest is not None and (newest.version, newest.definition) == (SECOND, b"[]")
        assert await schemas.get(TOPIC, SECOND) is newest

    assert asking(broker, work) == 2


def test_the_newest_version_is_asked_for_each_time() -> None:
    broker = PulsarDevBroker()

    async def work(schemas: Schemas) -> None:
        assert await schemas.get(TOPIC) is None
        assert await schemas.get(TOPIC, FIRST) is None
        broker.register_schema(TOPIC, avro("1"))
        for text in ("1", "2"):
            broker.register_schema(TOPIC, avro(text))
            newest = await schemas.get(TOPIC)
            assert newest is not None and newest.definition == text.encode()

    assert asking(broker, work) == 4


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    broker = PulsarDevBroker()
    versions = [broker.register_schema(TOPIC, avro(str(number))) for number in range(5)]

    async def work(schemas: Schemas) -> None:
        for version in (*versions, *versions[2:], versions[0]):
            assert await schemas.get(TOPIC, version) is not None
            assert len(schemas._known) <= 3

    assert asking(broker, work) == 6


class _Refusing(PulsarConnection):
    def send(self, kind: pb.BaseCommand.Type, **parts: Any) -> None:
        if kind == pb.BaseCommand.GET_SCHEMA_RESPONSE:
            parts["getSchemaResponse"].error_code = pb.AuthorizationError
        super().send(kind, **parts)


class Refusing(PulsarDevBroker):
    """Tells its schemas to nobody."""

    connection = _Refusing


def test_a_refusal_is_an_error_and_no_missing_schema() -> None:
    async def work(schemas: Schemas) -> None:
        with pytest.raises(BrokerError, match="AuthorizationError"):
            await schemas.get(TOPIC)

    asking(Refusing(), work)
