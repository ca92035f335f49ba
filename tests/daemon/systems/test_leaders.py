"""Partitions that move to other leaders: what the former connection has received comes first."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.systems.reading import clustered
from fastwire_daemon.systems.reading.clustered import ClusteredSource
from fastwire_daemon.testing.system.scene import TOPIC, MemorySink, Scene

Broker = KafkaDevBroker | TankDevBroker
EACH = RollPolicy(max_rows=1)  # a commit for each chunk
BATCH = 10_000  # records, of which two batches are more than a chunk


@pytest.fixture(params=["kafka", "tank"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    made: Broker = KafkaDevBroker(KafkaOptions(nodes=2))
    if request.param == "tank":
        made = TankDevBroker(TankOptions(nodes=2))
    with running(made) as found:
        yield found
        assert found.violations == []


@pytest.mark.parametrize("paused", [False, True])
async def test_records_of_the_former_leader_come_before_those_of_the_new_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    """The chunk of the new connection is full before that of the former one is old enough to be passed on."""
    monkeypatch.setattr(clustered, "CHUNK_AGE_S", math.inf)
    scene, sink = Scene(broker, {"metadata_max_age": "100ms"}), MemorySink()
    async with scene.running(sink, policy=EACH) as run:
        await run.assigned(sink)
        scene.produce(10)
        source = scene.last_source
        assert isinstance(source, ClusteredSource)
        await run.until(lambda: holds_records(source), "records in an open chunk")
        if paused:
            source.set_paused(0, paused=True)
        broker.move_leader(TOPIC)
        for _ in range(3):
            scene.produce(BATCH)
        source.set_paused(0, paused=False)
        await run.until(lambda: len(sink.rows) >= 10 + BATCH, "a full chunk of the new connection")
    assert sink.values == scene.produced[: len(sink.rows)]


def holds_records(source: ClusteredSource[Any, Any, Any]) -> bool:
    """Return True if a connection of the source has records that were not passed on."""
    return any(link.connection.open_since is not None for link in source.cluster.links.values())
