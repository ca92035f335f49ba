"""Nodes, faults and connections of the embedded broker."""

from collections.abc import Iterator

import pytest

from fastwire.tank.format.error import PartitionStatus, ProduceCode
from fastwire.tank.format.message import PING, DiscoverPartitions, DiscoverTopics, DiscoverTopology
from fastwire.tank.producing.bundle import encode_values
from fastwire.tank.protocol.produce import PartitionBundle, ProduceRequest
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from tests.support.tank.raw_client import Peer
from tests.support.waiting import eventually


@pytest.fixture(name="broker")
def serving() -> Iterator[TankDevBroker]:
    with running(TankDevBroker(TankOptions(nodes=2))) as broker:
        broker.create_topic("t", 3)
        yield broker
        assert broker.violations == []


def stored(broker: TankDevBroker, partition: int = 0) -> int:
    return broker.topics["t"][partition].last


def produce(partition: int = 0) -> ProduceRequest:
    return ProduceRequest((("t", (PartitionBundle(partition, encode_values([b"a"], 1)),)),))


def test_other_nodes_name_the_leader(broker: TankDevBroker) -> None:
    broker.produce("t", [b"a"], 1)
    with Peer(broker) as first, Peer(broker, 1) as second:
        result = first.consume("t", 1, 1).slots.result(0)
        assert (result.status, result.leader) == (PartitionStatus.REDIRECT, (broker.host, broker.ports[1]))
        assert len(second.consume("t", 1, 1).rows) == 1
        (told,) = first.ask(produce(1)).results
        assert (told.code, told.leader) == (ProduceCode.REDIRECT, (broker.host, broker.ports[1]))
        assert stored(broker, 1) == 1
        assert second.ask(produce(1)).results[0].code == ProduceCode.STORED
        assert stored(broker, 1) == 2
        ranges = first.ask(DiscoverPartitions("t")).ranges
        assert [one.leader for one in ranges] == [None, (broker.host, broker.ports[1]), None]
        assert [one.last for one in second.ask(DiscoverPartitions("t")).ranges] == [0, 2, 0]


def test_all_nodes_know_the_cluster(broker: TankDevBroker) -> None:
    for node in (0, 1):
        with Peer(broker, node) as peer:
            nodes = peer.ask(DiscoverTopology()).nodes
            assert [one.endpoint for one in nodes] == [(broker.host, port) for port in broker.ports]
            listed = peer.ask(DiscoverTopics())
            assert (listed.cluster_aware, [(one.name, one.replicas) for one in listed.topics]) == (True, [("t", 2)])


def test_a_leader_that_moves_ends_the_wait(broker: TankDevBroker) -> None:
    with Peer(broker) as peer:
        peer.ask_messages("t", 0, max_wait_ms=60_000)
        eventually(lambda: broker.call(lambda: len(broker.held)), "a request that waits")
        broker.move_leader("t")
        assert peer.messages("t", 0).slots.result(0).leader == (broker.host, broker.ports[1])
        broker.move_leader("t", node=-1)
        assert peer.consume("t", 0).slots.result(0).status == PartitionStatus.NO_LEADER
        assert peer.ask(DiscoverPartitions("t")).ranges[0].status == PartitionStatus.NO_LEADER
        assert peer.ask(produce()).results[0].code == ProduceCode.NO_LEADER
        broker.move_leader("t", node=0)
        assert peer.ask(produce()).results[0].code == ProduceCode.STORED


@pytest.mark.parametrize("is_stored", [False, True])
def test_refused_bundles(broker: TankDevBroker, is_stored: bool) -> None:
    broker.refuse_bundles(ProduceCode.TIMED_OUT, 2, stored=is_stored)
    with Peer(broker) as peer:
        codes = [peer.ask(produce()).results[0].code for _ in range(3)]
    assert codes == [ProduceCode.TIMED_OUT, ProduceCode.TIMED_OUT, ProduceCode.STORED]
    assert stored(broker) == (3 if is_stored else 1)


def test_refused_reads(broker: TankDevBroker) -> None:
    broker.produce("t", [b"a"])
    plain = [PartitionStatus.SYSTEM_FAULT, PartitionStatus.NO_LEADER, PartitionStatus.UNKNOWN_PARTITION]
    for status in plain:
        broker.refuse_reads(status)
    with Peer(broker) as peer:
        assert [peer.consume("t", 1).slots.result(0).status for _ in plain] == plain
        assert len(peer.consume("t", 1).rows) == 1


def test_refusals_that_would_be_no_answers(broker: TankDevBroker) -> None:
    for code in (ProduceCode.REDIRECT, ProduceCode.READ_ONLY, ProduceCode.UNKNOWN_TOPIC):
        with pytest.raises(ValueError, match="no result of one bundle"):
            broker.refuse_bundles(code)
    for status in set(PartitionStatus) - {0xFB, 0xFD, 0xFF}:
        with pytest.raises(ValueError, match="not a status without fields"):
            broker.refuse_reads(status)


# --- connections that are never used


def test_a_connection_that_is_never_used_is_closed() -> None:
    """One that has sent a byte before stays: it is answered after the other one has been closed."""
    with running(TankDevBroker(TankOptions(never_used_s=0.2))) as broker, Peer(broker) as used:
        used.send_bytes(PING[:1])
        with Peer(broker) as unused:
            assert unused.frame() == b""
        eventually(lambda: broker.call(lambda: len(broker.connections)) == 1, "only the used one is left")
        used.send_bytes(PING[1:])
        assert used.ask(DiscoverTopics()).topics == ()
        assert broker.call(lambda: len(broker.never_used)) == 0
        assert broker.violations == []


def test_the_oldest_of_too_many_that_are_never_used_is_closed() -> None:
    with running(TankDevBroker(TankOptions(never_used=2))) as broker, Peer(broker) as used:
        used.send_bytes(PING)
        assert used.ask(DiscoverTopics()).topics == ()
        with Peer(broker) as first, Peer(broker) as second, Peer(broker) as third:
            assert first.frame() == b""
            for one in (used, second, third):
                assert one.ask(DiscoverTopics()).topics == ()
        assert broker.violations == []
