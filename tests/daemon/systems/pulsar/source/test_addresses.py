"""Addresses of brokers in the Pulsar source: proxies, listeners, redirects, brokers that move topics, IPv6."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Record
from fastwire.pulsar.names.topic import parse_service_url
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker
from fastwire_daemon.systems.reading.stage import Stage
from tests.support.pulsar.client_scene import playing, take
from tests.support.pulsar.source_scene import FULL, reading, serving
from tests.support.source_pipe import Pipe, entries, until

C = pb.BaseCommand
INNER = "pulsar://inner-broker:6650"  # a name that only the proxy knows


def wanted(broker: PulsarDevBroker) -> list[str]:
    """Return the broker that each connection has asked the proxy for."""
    return sorted(one.proxy_to for one in broker.connections if isinstance(one, PulsarConnection))


async def test_several_hosts_and_the_first_one_dead() -> None:
    dead = PulsarDevBroker()
    await dead.start()
    port = dead.port
    await dead.stop()
    async with serving() as broker:
        broker.append("t", entries(0, 2))
        url = f"pulsar://127.0.0.1:{port},127.0.0.1:{broker.port}"
        assert len(parse_service_url(url).addresses) == 2
        async with reading(broker, url=url) as pipe:
            await pipe.got(20)


async def test_lookups_follow_redirects_but_not_for_ever() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 2))
        broker.redirect(times=20)
        async with reading(broker) as pipe:
            await pipe.got(20)
        broker.redirect(times=21)
        async with reading(broker, subscription="other") as pipe:
            await until(lambda: "more than 20 redirects" in pipe.source.partitions[0].error, "a refusal")
            await pipe.got(20)


@asynccontextmanager
async def behind_a_proxy(redirected_to: str | None = None) -> AsyncIterator[tuple[PulsarDevBroker, Pipe]]:
    """A broker whose name only its proxy knows, and a source that has read twenty rows through that."""
    async with serving(proxy_through_service_url=True) as broker:
        broker.advertised_url = INNER
        if redirected_to is not None:
            broker.redirect(redirected_to)
        broker.append("t", entries(0, 2))
        async with reading(broker) as pipe:
            await pipe.got(20)
            yield broker, pipe


async def test_brokers_behind_a_proxy() -> None:
    async with behind_a_proxy() as (broker, pipe):
        # One connection for the proxy's own answers, one through it: without a scheme, as proxies want it.
        assert wanted(broker) == ["", "inner-broker:6650"]
        await pipe.drained()
        broker.drop_connections()
        broker.append("t", entries(2, 1))
        await pipe.got(30)
        assert wanted(broker) == ["", "inner-broker:6650"]


async def test_redirects_behind_a_proxy() -> None:
    async with behind_a_proxy("pulsar://other-broker:6650") as (broker, _):
        assert wanted(broker) == ["", "inner-broker:6650", "other-broker:6650"]


async def test_a_topic_that_moves_behind_a_proxy_is_followed_through_it() -> None:
    async with behind_a_proxy() as (broker, pipe):
        pipe.commit()
        asked = lookups(broker)
        broker.unload("t", "pulsar://third-broker:6650")
        broker.append("t", entries(2, 1))
        await pipe.got(30)
        assert "third-broker:6650" in wanted(broker)
        assert lookups(broker) == asked


async def test_people_and_producers_follow_a_topic_through_the_proxy_too() -> None:
    async with playing(proxy_through_service_url=True) as (broker, client):
        broker.advertised_url = INNER
        async with client.subscribe("t", "s") as consumer, await client.producer("t") as producer:
            await producer.send(Record(value=b"1"))
            await take(consumer, 1)
            asked = lookups(broker)
            broker.unload("t", "pulsar://third-broker:6650")
            await producer.send(Record(value=b"2"))
            await take(consumer, 1)
            assert wanted(broker).count("third-broker:6650") == 2  # they share no connection
            assert lookups(broker) == asked


def lookups(broker: PulsarDevBroker) -> int:
    return sum(one.commands.count("LOOKUP") for one in broker.connections if isinstance(one, PulsarConnection))


async def test_a_listener_is_chosen_by_its_name() -> None:
    async with serving(listeners={"outside": ""}) as broker:
        broker.advertised_url = "pulsar://127.0.0.1:1"  # the inside, where we cannot go
        broker.append("t", entries(0, 1))
        async with reading(broker, listener="outside") as pipe:
            await pipe.got(10)
        async with reading(broker, listener="nowhere") as pipe:
            await until(lambda: "do not have nowhere listener" in pipe.source.partitions[0].error, "a refusal")
            assert pipe.failure is None  # it may be one that the broker gets with its next start


async def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")

    broker = PulsarDevBroker()
    try:
        await broker.start("::1")
    except OSError as exc:
        pytest.skip(f"no IPv6 here: {exc.strerror}")
    try:
        broker.create_topic("t")
        broker.append("t", entries(0, 1))
        assert broker.url == f"pulsar://[::1]:{broker.port}"
        pipe = await Pipe(broker).start()
        await pipe.got(10)
        await pipe.close()
    finally:
        await broker.stop()


async def test_a_lookup_that_answers_nonsense_is_tried_again() -> None:
    answers = ["pulsar://a b", "http://a"]

    class Confused(PulsarDevBroker):
        class connection(PulsarConnection):  # noqa: N801
            def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
                if kind == C.LOOKUP_RESPONSE and answers:
                    parts["lookupTopicResponse"].brokerServiceUrl = answers.pop(0)
                super().send(kind, **parts)

    async with serving(Confused()) as broker:
        broker.append("t", entries(0, 1))
        async with reading(broker) as pipe:
            await pipe.got(10)


async def test_a_topic_that_migrates_is_read_on_in_its_new_cluster() -> None:
    async with serving(partitions=2) as broker, serving(partitions=2) as other:
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 2))
            other.append(f"t-partition-{partition}", entries(2, 2))
        async with reading(broker, pattern="t", partition_poll_s=0.1) as pipe:
            await pipe.got(40)
            await pipe.drained()
            broker.migrate("t", other.url)
            await pipe.got(80)
            pipe.commit()
            await until(lambda: other.backlog("t", "s") == 0, "acks to the other cluster")
            assert {(log.cluster, log.partition, log.topic) for log in pipe.source.logs} == {
                (cluster, partition, FULL) for cluster in ("c", f"127.0.0.1:{other.port}") for partition in ("0", "1")
            }
            # The old cluster forgets the topic; what moved is none of its business.
            broker.delete_topic("t")
            other.append("t-partition-0", entries(4, 1))
            await pipe.got(90)
            assert {one.stage for one in pipe.source.partitions[2:]} == {Stage.READING}


async def test_the_last_failure_is_remembered_while_nobody_answers() -> None:
    async with serving() as broker:
        async with reading(broker) as pipe:
            await pipe.granted()
            assert pipe.source.unreachable_because == ""
            port = broker.port
            await broker.stop()
            await until(lambda: f"127.0.0.1:{port}" in pipe.source.unreachable_because, "a reason")
            assert "refused" in pipe.source.unreachable_because
            await broker.start(port=port)
            await pipe.granted()
            assert pipe.source.unreachable_because == ""
