"""Racks: records come from the replica in ours (KIP-392), and so do a member's partitions (KIP-881)."""

from typing import Any

import pytest

from fastwire.kafka.format.error import Code
from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire_daemon.config import ConfigError, parse_connection
from fastwire_daemon.devbroker.kafka import Request
from fastwire_daemon.systems.kafka import replica
from fastwire_daemon.systems.kafka.config import KafkaSourceConfig
from fastwire_daemon.systems.kafka.source.settings import settings_from
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until

RACKS = ("a", "b", "c")
NEAR = FetchLimits(max_wait_ms=100, partition_bytes=1000, rack="c")


@pytest.mark.parametrize("release", ["2.3", "2.4", "3.3", "4.1"])
async def test_records_come_from_our_rack(release: str) -> None:
    async with serving(3, nodes=3, racks=RACKS, release=release) as broker:
        for partition in range(3):
            broker.append("t", batches(0, 20), partition)
        async with reading(broker, limits=NEAR) as pipe:
            await pipe.got(600)
            assert_once(pipe, 600)
            broker.append("t", batches(20, 5))
            await pipe.got(650)
        assert set(broker.read_at) == {2}


async def test_without_a_rack_it_is_the_leader() -> None:
    async with serving(2, nodes=2, racks=("a", "b")) as broker:
        for partition in range(2):
            broker.append("t", batches(0, 5), partition)
        async with reading(broker) as pipe:
            await pipe.got(100)
        assert set(broker.read_at) == {0, 1}


@pytest.mark.parametrize(
    "code",
    [Code.OFFSET_OUT_OF_RANGE, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR],
)
async def test_a_replica_that_refuses_is_left_for_the_leader(code: int) -> None:
    async with serving(nodes=3, racks=RACKS) as broker:
        broker.append("t", batches(0, 20))
        broker.refuse_at_replicas(code, 1)
        async with reading(broker, limits=NEAR) as pipe:
            await pipe.got(200)
            assert_once(pipe, 200)
            assert pipe.count("stopped") == pipe.count("diverged") == 0
        assert set(broker.read_at) == {0}


async def test_a_replica_that_cannot_be_reached_is_left_for_the_leader() -> None:
    async with serving(nodes=3, racks=RACKS) as broker:
        broker.append("t", batches(0, 20))
        broker.advertise(2, "127.0.0.1", 1)
        async with reading(broker, limits=NEAR) as pipe:
            await pipe.got(200)
            assert_once(pipe, 200)
        assert set(broker.read_at) == {0}


async def test_the_leader_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "PREFERRED_S", 0.0)
    monkeypatch.setattr(replica, "AVOIDED_S", 0.0)

    async with serving(nodes=3, racks=RACKS) as broker:
        broker.append("t", batches(0, 40))
        broker.refuse_at_replicas(Code.OFFSET_OUT_OF_RANGE, 1)
        async with reading(broker, limits=NEAR) as pipe:
            await pipe.got(400)
            assert_once(pipe, 400)
            await until(lambda: broker.read_at[2] > 1, "records of the replica", lambda: broker.read_at)
            assert broker.read_at[0] > 0


async def test_a_leader_that_moves_while_a_replica_is_read() -> None:
    async with serving(nodes=3, racks=RACKS) as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker, limits=NEAR) as pipe:
            await pipe.got(100)
            broker.move_leader("t")
            broker.append("t", batches(10, 10))
            await pipe.got(200)
            broker.move_leader("t", node=2)
            broker.append("t", batches(20, 10))
            await pipe.got(300)
            assert_once(pipe, 300)


def test_the_configuration_says_the_rack_to_leaders_and_group() -> None:
    keys = {"url": "kafka://h", "topics": ["t"], "subscription": "g", "start": "earliest"}
    settings = settings_from(KafkaSourceConfig.model_validate(keys | {"rack": "c", "client_id": "me"}))
    assert (settings.limits.rack, settings.membership.rack, settings.client_id) == ("c", "c", "me")
    settings = settings_from(KafkaSourceConfig.model_validate(keys))
    assert (settings.limits.rack, settings.membership.rack) == ("", None)
    assert settings.client_id.startswith("fastwire-")
    for key in ("rack", "client_id"):
        with pytest.raises(ConfigError, match="it is a key for kafka"):
            parse_connection({"url": "pulsar://h", key: "x"})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_says_its_rack(protocol: str) -> None:
    said = []

    def hear(request: Request, frame: bytes) -> bytes:
        if request.api.name == "JoinGroup":
            said.append(request.body["protocols"][0]["metadata"].endswith(b"\0\1c"))
        elif request.api.name == "ConsumerGroupHeartbeat":
            said.append(request.body["rack_id"] == "c")
        return frame

    async with serving() as broker:
        broker.append("t", batches(0, 1))
        broker.tamper = hear
        async with reading(broker, protocol=protocol, rack="c") as pipe:
            await pipe.got(10)
    assert said[0]


async def test_members_get_the_partitions_of_their_racks() -> None:
    range_of_two: dict[str, Any] = {"protocol": "classic", "assignor": "range"}

    def granted(pipe: KafkaPipe) -> list[str]:
        return sorted(one.log.partition for one in pipe.source.partitions if one.granted)

    # Plain ranges would give 0 and 1 to the first member, which is in the rack of 1 and 3.
    async with (
        serving(4, nodes=2, racks=("a", "b")) as broker,
        reading(broker, instance="1", rack="b", **range_of_two) as first,
    ):
        first.eager = True
        await first.granted()
        async with reading(broker, instance="2", rack="a", **range_of_two) as second:
            second.eager = True
            await until(lambda: len(granted(first)) == len(granted(second)) == 2, "half of the partitions each")
            assert (granted(first), granted(second)) == (["1", "3"], ["0", "2"])
