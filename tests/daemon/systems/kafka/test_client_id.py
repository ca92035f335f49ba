"""The client id is in each request, by which brokers tell clients apart in logs, metrics and quotas (spec: kafka 1)."""

from collections import defaultdict

from fastwire.wire.pool import Pool
from fastwire_daemon.config import TopicChoice, parse_connection, parse_start
from fastwire_daemon.devbroker.kafka import Request
from fastwire_daemon.systems.registry import system_named
from fastwire_daemon.systems.writer import Put, WriteOptions
from tests.support.kafka.source_pipe import batches
from tests.support.kafka.source_scene import reading, serving


async def test_every_request_names_the_client() -> None:
    named: dict[str, set[str]] = defaultdict(set)

    def hear(request: Request, frame: bytes) -> bytes:
        named[request.api.name].add(request.client_id)
        return frame

    kafka = system_named("kafka")
    async with serving() as broker:
        broker.append("t", batches(0, 1))
        broker.tamper = hear
        connection = parse_connection({"url": broker.url, "client_id": "billing"})
        async with reading(broker, client_id="billing", protocol="classic") as pipe:
            await pipe.got(10)
        reader = kafka.open_reader(
            connection, TopicChoice(("t",)), parse_start("earliest", kafka.grammar), Pool(1 << 24)
        )
        await reader.open()
        assert [chunk.rows async for chunk in reader.up_to_now()] == [10]
        await reader.close()
        async with kafka.open_writer(connection, "t", WriteOptions()) as writer:
            await writer.write(Put(b"x"))
    assert {"ApiVersions", "Metadata", "JoinGroup", "ListOffsets", "Fetch", "Produce"} <= named.keys()
    assert set().union(*named.values()) == {"billing"}
