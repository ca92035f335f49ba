"""The Pulsar source with brokers of every protocol version that is spoken, with and without their features."""

from typing import Any

import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.systems.source import SourceFailed
from tests.support.pulsar.source_scene import reading, serving
from tests.support.source_pipe import Pipe, entries, until

VERSIONS = range(12, 22)
FEATURES = {
    "all": pb.FeatureFlags(
        supports_auth_refresh=True,
        supports_broker_entry_metadata=True,
        supports_topic_watchers=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
    ),
    "none": pb.FeatureFlags(),
}


def old(version: int, features: str, **more: Any) -> dict[str, Any]:
    """The options of a broker that has learnt no more than a version's clients may expect."""
    return {
        "protocol_version": version,
        "feature_flags": FEATURES[features],
        "tell_mark_delete": version >= 17,
        "broker_entry_metadata": True,
        "batch_index_acks": version >= 17,
        **more,
    }


@pytest.mark.parametrize(
    ("version", "features"), [*((version, "none") for version in VERSIONS), (12, "all"), (17, "all"), (21, "all")]
)
@pytest.mark.parametrize("kind", ["failover", "shared"])
async def test_everything_once_from_a_broker_of_any_age(version: int, features: str, kind: str) -> None:
    """The embedded broker takes it for a broken rule if it is asked for what came later than its version."""
    async with serving(partitions=2, **old(version, features)) as broker:
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 10))
        async with reading(broker, pattern="t", subscription_type=kind, partition_poll_s=0.1) as pipe:
            await pipe.got(200)
            await pipe.drained()
            broker.challenge()
            broker.unload("t")
            await until(lambda: pipe.count("revoked") > 0, "a revocation")
            await pipe.granted()
            broker.grow_topic("t", 3)
            broker.append("t-partition-2", entries(0, 2))
            await pipe.got(220)
            await pipe.drained()
            assert pipe.once()


@pytest.mark.parametrize("start", ["latest", "1970-01-01T00:00:00Z"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_positions_on_a_broker_of_any_age(version: int, start: str) -> None:
    async with serving(**old(version, "none")) as broker:
        broker.append("t", entries(0, 3))
        async with reading(broker, start=start) as pipe:
            await pipe.granted()
            broker.append("t", entries(3, 1))
            await pipe.got(10 if start == "latest" else 40)
            await pipe.drained()


@pytest.mark.parametrize("version", [13, 14])
async def test_key_shared_needs_a_broker_that_knows_it(version: int) -> None:
    async with serving(**old(version, "none")) as broker:
        broker.append("t", entries(0, 1))
        async with reading(broker, subscription_type="key_shared") as pipe:
            if version < 14:
                await until(lambda: pipe.failure is not None, "a refusal")
                assert "Key_Shared needs protocol version 14" in str(pipe.failure)
            else:
                await pipe.got(10)
                await pipe.drained()


async def test_a_broker_that_is_too_old() -> None:
    async with serving(protocol_version=11) as broker:
        pipe = Pipe(broker)
        with pytest.raises(SourceFailed, match="speaks protocol version 11, 12 is the oldest supported"):
            await pipe.start()
        await pipe.close()


async def test_a_broker_of_tomorrow_is_spoken_to_as_one_of_today() -> None:
    broker = PulsarDevBroker()
    async with serving(broker):
        broker.append("t", entries(0, 1))
        async with reading(broker) as pipe:
            await pipe.got(10)
            (link,) = pipe.source.cluster.links.values()
            assert link.connection.protocol_version == 21
