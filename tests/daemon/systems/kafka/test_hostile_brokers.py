"""Kafka brokers whose answers cannot be right: source and producer survive each of them, and lose nothing."""

from typing import Any

import pytest

from fastwire_daemon.systems.source import SourceFailed
from tests.support.hostile.kafka import BYTES, MEANING, Lie, lying, nothing
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until

ALONE = ("ApiVersions", "Metadata", "ListOffsets", "OffsetFetch", "FindCoordinator", "Fetch", "OffsetForLeaderEpoch")
CLASSIC = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit")
PATIENT: dict[str, Any] = {"request_timeout_s": 1.0, "connect_timeout_s": 1.0}


@pytest.mark.parametrize(
    ("api", "lie"),
    [
        pytest.param(api, lie, id=f"{api}-{lie.__name__}")
        for api in ALONE
        for lie in (*BYTES, *MEANING)
        if api not in ("ApiVersions", "ListOffsets") or lie in BYTES  # a broker of other versions is refused, see below
    ],
)
async def test_what_a_reader_is_told(api: str, lie: Lie) -> None:
    """Read some, have it all moved to another leader so that everything is asked for again, and be lied to once."""
    async with serving() as broker:
        liar = lying(broker, api, lie) if api != "OffsetForLeaderEpoch" else None
        broker.append("t", batches(0, 10))
        async with reading(broker, **PATIENT) as pipe:
            await pipe.got(100)
            pipe.commit()
            liar = liar or lying(broker, api, lie)
            broker.move_leader("t")
            broker.append("t", batches(10, 10))
            await pipe.got(200)
            assert liar.left == 0
            assert_once(pipe, 200)


# What a coordinator may say: any generation, that a member has nothing to read, or what it has never heard of.
BELIEVED = {("JoinGroup", "anything"), ("SyncGroup", "nothing"), ("ConsumerGroupHeartbeat", "others")}
OF_MEMBERS = [("classic", api) for api in CLASSIC] + [("consumer", "ConsumerGroupHeartbeat")]


@pytest.mark.parametrize(
    ("protocol", "api", "lie"),
    [
        pytest.param(protocol, api, lie, id=f"{api}-{lie.__name__}")
        for protocol, api in OF_MEMBERS
        for lie in (*BYTES, *MEANING)
        if (api, lie.__name__) not in BELIEVED
    ],
)
async def test_what_a_member_is_told(protocol: str, api: str, lie: Lie) -> None:
    async with serving() as broker:
        liar = lying(broker, api, lie)
        broker.append("t", batches(0, 10))
        async with reading(broker, protocol=protocol, **PATIENT) as pipe:
            await pipe.got(100)
            pipe.commit()
            await until(lambda: liar.left == 0, f"an answer to {api}")
            broker.append("t", batches(10, 10))
            await pipe.got(200)
            await pipe.drained()
            assert pipe.once()


async def test_a_broker_that_offers_nothing_is_refused() -> None:
    async with serving() as broker:
        lying(broker, "ApiVersions", nothing)
        pipe = KafkaPipe(broker, **PATIENT)
        with pytest.raises(SourceFailed, match="the broker does not offer Metadata"):
            await pipe.start()
        await pipe.close()
