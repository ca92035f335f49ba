"""Connections and questions to a cluster of embedded brokers."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fastwire.errors import FastwireError
from fastwire.tank.format.error import BrokerError, CreateCode, PartitionStatus
from fastwire.tank.format.message import DiscoverPartitions, DiscoverTopics, PartitionRange, PartitionRanges
from fastwire.tank.names import parse_tank_url
from fastwire.tank.protocol import connection
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.net.endpoint import LinkLost, UnreachableError
from fastwire_daemon.systems.tank import cluster as module
from fastwire_daemon.systems.tank.cluster import ClientCluster
from fastwire_daemon.systems.tank.refusal import is_for_good
from fastwire_daemon.systems.tank.settings import ClientSettings
from tests.support.tcp_proxy import Proxy


@contextmanager
def serving(nodes: int = 1, **options: bool) -> Iterator[TankDevBroker]:
    with running(TankDevBroker(TankOptions(nodes=nodes, **options))) as broker:
        yield broker
        assert broker.violations == []


def connected(url: str, *, request_timeout_s: float = 30.0) -> ClientCluster:
    return ClientCluster(ClientSettings(url=parse_tank_url(url), request_timeout_s=request_timeout_s))


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def test_a_standalone_broker_leads_everything() -> None:
    with serving() as broker:
        broker.create_topic("t", 3)
        broker.produce("t", [b"x"] * 5, 1)
        async with connected(broker.url) as cluster:
            ranges = await cluster.ranges("t")
            assert ranges.count == 3
            assert ranges.found == {0: PartitionRange(), 1: PartitionRange(1, 5), 2: PartitionRange()}
            assert ranges.failed == {}
            link = await cluster.leader("fetch", ("t", 2))
            assert link.address == (broker.host, broker.port)
            assert await cluster.leader("fetch", ("t", 0)) is link
            assert await cluster.leader("produce", ("t", 0)) is not link
            assert broker.requests["DISCOVER_TOPOLOGY"] == 0  # brokers of 2019 and before close the connection for it


async def test_partitions_are_asked_for_at_their_leaders() -> None:
    with serving(nodes=3) as broker:
        broker.create_topic("t", 7)
        for number in range(7):
            broker.produce("t", [b"x"] * (number + 1), number)
        async with connected(broker.url) as cluster:
            ranges = await cluster.ranges("t")
            assert ranges.found == {number: PartitionRange(1, number + 1) for number in range(7)}
            leaders = [await cluster.leader("fetch", ("t", number)) for number in range(7)]
            assert [link.address[1] for link in leaders] == [broker.ports[number % 3] for number in range(7)]


async def test_a_leader_that_has_moved_is_found_again() -> None:
    with serving(nodes=2) as broker:
        broker.create_topic("t")
        async with connected(broker.url) as cluster:
            assert (await cluster.leader("fetch", ("t", 0))).address[1] == broker.ports[0]
            broker.move_leader("t")
            cluster.lead(("t", 0), None)
            assert (await cluster.leader("fetch", ("t", 0))).address[1] == broker.ports[1]
            cluster.lead(("t", 0), (broker.host, broker.ports[0]))
            assert (await cluster.leader("fetch", ("t", 0))).address[1] == broker.ports[0]


async def test_a_missing_leader_fails_its_own_partitions() -> None:
    with serving(nodes=2) as broker:
        broker.create_topic("t", 3)
        broker.move_leader("t", 2, node=-1)
        broker.ports[1] = closed_port()  # the broker names it as the leader of partition 1
        async with connected(broker.url) as cluster:
            ranges = await cluster.ranges("t")
            assert ranges.of(0) == PartitionRange()
            with pytest.raises(UnreachableError):
                ranges.of(1)
            with pytest.raises(BrokerError, match="t/2: no leader; no broker leads the partition now"):
                await cluster.leader("fetch", ("t", 2))
            with pytest.raises(BrokerError, match="t/3: unknown partition"):
                ranges.of(3)


async def test_a_leader_that_cannot_be_reached_is_not_kept() -> None:
    with serving() as broker:
        broker.create_topic("t")
        async with connected(broker.url) as cluster:
            cluster.lead(("t", 0), (broker.host, closed_port()))
            with pytest.raises(UnreachableError):
                await cluster.leader("fetch", ("t", 0))
            assert (await cluster.leader("fetch", ("t", 0))).address[1] == broker.port


async def test_brokers_that_name_each_other() -> None:
    with serving(nodes=2) as broker:
        broker.create_topic("t", 2)
        first = broker.port
        broker.ports[1] = first
        async with connected(f"tank://127.0.0.1:{first}") as cluster:
            ranges = await cluster.ranges("t")
            assert ranges.of(0) == PartitionRange()
            with pytest.raises(BrokerError, match="t/1: 3 brokers have named another leader: redirect"):
                ranges.of(1)


async def test_an_unknown_topic() -> None:
    with serving() as broker:
        broker.create_topic("t")
        async with connected(broker.url) as cluster:
            await cluster.leader("fetch", ("t", 0))
            broker.delete_topic("t")
            with pytest.raises(BrokerError) as info:
                await cluster.ranges("t")
            assert info.value.code is PartitionStatus.UNKNOWN_TOPIC
            assert not is_for_good(info.value)
            with pytest.raises(BrokerError):  # the leader of the deleted topic is forgotten
                await cluster.leader("fetch", ("t", 0))


async def test_an_unknown_topic_fails_no_other_one() -> None:
    with serving() as broker:
        broker.create_topic("t")
        async with connected(broker.url) as cluster:
            ranges = await cluster.ranges_of(["none", "t"])
            assert ranges["t"].of(0) == PartitionRange()
            with pytest.raises(BrokerError, match="none: unknown topic"):
                ranges["none"].of(0)


async def test_disabled_partitions_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PartitionRanges.decode

    def short(payload: bytes) -> tuple[int, PartitionRanges]:
        request_id, answer = real(payload)
        return request_id, replace(answer, ranges=answer.ranges[1:])

    monkeypatch.setattr(PartitionRanges, "decode", short)
    with serving() as broker:
        broker.create_topic("t", 3)
        async with connected(broker.url) as cluster:
            with pytest.raises(FastwireError, match="lists 2 of the 3 partitions of t: enable the others"):
                await cluster.ranges("t")


async def test_other_brokers_answer_when_the_host_of_the_url_is_away() -> None:
    with serving(nodes=2) as broker:
        broker.create_topic("t", 2)
        with Proxy(broker.port, scheme="tank", least=1 << 20) as proxy:
            async with connected(proxy.url) as cluster:
                await cluster.ranges("t")
                proxy.refusing = True
                for link in [link for link in cluster.links.values() if link.address[1] != proxy.port]:
                    link.abort("a test")
                    await link.lost
                proxy.cut()
                await asyncio.gather(*(link.lost for link in list(cluster.links.values())))
                assert await cluster.topics() == {"t": 2}


async def test_the_hosts_of_the_url_take_turns() -> None:
    with serving() as broker:
        broker.create_topic("t")
        async with connected(f"tank://127.0.0.1:{closed_port()},127.0.0.1:{broker.port}") as cluster:
            assert await cluster.topics() == {"t": 1}


async def test_topics_are_created_once() -> None:
    with serving() as broker:
        async with connected(broker.url) as cluster:
            assert await cluster.create("new", 3)
            assert not await cluster.create("new", 3)
            assert await cluster.topics() == {"new": 3}
            with pytest.raises(BrokerError, match="the broker has not created topic _: bad request") as info:
                await cluster.create("_", 1)
            assert info.value.code is CreateCode.BAD_REQUEST
            assert is_for_good(info.value)
    with serving(read_only=True) as broker:
        async with connected(broker.url) as cluster:
            with pytest.raises(BrokerError, match="read only; the broker was started read-only"):
                await cluster.create("new", 1)


async def test_a_broker_that_does_not_answer_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as broker:
        broker.create_topic("t")
        async with connected(broker.url, request_timeout_s=0.3) as cluster:
            link = await cluster.any()
            broker.muted = True
            first, second = link.begin(DiscoverPartitions("t")), link.begin(DiscoverTopics())
            for answer in (first, second):
                with pytest.raises(LinkLost, match="discover_partitions was not answered in time"):
                    await answer
            with pytest.raises(LinkLost, match="is closed"):
                link.begin(DiscoverTopics())
            broker.muted = False
            assert (await cluster.ranges("t")).count == 1


async def test_a_host_that_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with connected(f"tank://127.0.0.1:{silent.getsockname()[1]}") as cluster:
            with pytest.raises(LinkLost, match="the broker sent no ping after the connection was accepted"):
                await cluster.topics()
            assert cluster.links == {}


async def test_an_answer_for_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DiscoverPartitions", lambda topic: DiscoverPartitions("other"))
    with serving() as broker:
        broker.create_topic("other")
        async with connected(broker.url) as cluster:
            with pytest.raises(FastwireError, match="is for topic 'other', not 't'"):
                await cluster.ranges("t")
