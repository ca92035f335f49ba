"""The source of TANK: logs that shrink, vanish and move, and sequences that a broker does not deliver."""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from fastwire.position import Position
from fastwire.tank.format.error import PartitionStatus
from fastwire_daemon.config import PipelineConfig, parse_config
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.pipeline.failure import PipelineFailed
from fastwire_daemon.systems.tank.source import tanksource
from fastwire_daemon.testing.system.scene import OPEN, TOPIC, MemorySink, Scene

QUICK = {"metadata_max_age": "100ms"}


@pytest.fixture
def broker() -> Iterator[TankDevBroker]:
    """Two nodes; node n leads partition n."""
    with running(TankDevBroker(TankOptions(nodes=2))) as found:
        yield found
        assert found.violations == []


@pytest.fixture
def scene(broker: TankDevBroker) -> Scene:
    return Scene(broker, QUICK)


def end(sink: MemorySink, incarnation: int = 0) -> Position | None:
    """The landed end of the first partition."""
    log = next(log for log in sink.log.coverage.logs() if (log.partition, log.incarnation) == ("0", str(incarnation)))
    return sink.log.coverage.end(log)


def landed(sink: MemorySink, rows: int) -> bool:
    return len(sink.rows) == rows


def values(sink: MemorySink) -> list[bytes]:
    return sorted(sink.values)


async def test_what_retention_has_deleted_is_a_declared_gap(broker: TankDevBroker, scene: Scene) -> None:
    sink = MemorySink()
    first = scene.produce(10)
    await scene.land(sink)
    broker.roll(TOPIC)
    scene.produce(10)
    broker.roll(TOPIC)
    last = scene.produce(10)
    broker.trim(TOPIC, 21)
    await scene.land(sink)
    assert values(sink) == sorted(first + last)
    assert end(sink) == Position(31, 0)


async def test_retention_may_pass_a_pipeline_that_runs(broker: TankDevBroker, scene: Scene) -> None:
    """The sink blocks the pipeline until retention has deleted what comes next."""
    sink = MemorySink()
    sink.gate.clear()
    for _ in range(40):
        scene.produce(16, size=64 << 10)
        broker.roll(TOPIC)
    async with scene.running(sink) as run:
        await run.until(lambda: run.pipeline.queued, "a chunk that waits for the sink")
        broker.trim(TOPIC, 640)
        sink.gate.set()
        await run.until(lambda: sink.values and sink.values[-1] == scene.produced[-1], "the last message")
    assert 16 < len(sink.rows) < 640
    assert end(sink) == Position(641, 0)


async def test_retention_may_delete_what_lies_before_the_position_of_a_source_that_runs(
    broker: TankDevBroker, scene: Scene
) -> None:
    sink = MemorySink()
    scene.produce(10)
    async with scene.running(sink) as run:
        await run.until(partial(landed, sink, 10), "the first messages")
        source: Any = run.pipeline._made_source
        source.set_paused(0, paused=True)
        broker.drop_connections()  # with the request that waits for more
        broker.roll(TOPIC)
        scene.produce(10)
        broker.trim(TOPIC, 11)
        source.set_paused(0, paused=False)
        await run.until(partial(landed, sink, 20), "what is still there")
    assert end(sink) == Position(21, 0)


async def test_a_log_that_begins_again_stops_until_incarnation_is_raised(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tanksource, "CATCH_UP_S", 0.1)
    sink = MemorySink()
    scene.produce(10)
    await scene.land(sink)
    scene.recreate()
    scene.produce(5)
    with pytest.raises(PipelineFailed, match=rf"11 has landed.*incarnation = {{ {TOPIC} = 1 }}"):
        await scene.land(sink)
    assert len(sink.rows) == 10
    await scene.land(sink, start="latest", incarnation={TOPIC: 1})
    assert values(sink) == sorted(scene.produced)
    assert (end(sink), end(sink, 1)) == (Position(11, 0), Position(6, 0))


@pytest.mark.parametrize("more", [10, 20])
async def test_a_log_that_begins_again_and_has_grown_beyond_what_has_landed_stops(scene: Scene, more: int) -> None:
    """A topic has no id. The dataset keeps what the last message was known by, and the broker has another one there."""
    sink = MemorySink()
    scene.produce(10)
    await scene.land(sink)
    scene.recreate()
    scene.produce(more)
    with pytest.raises(PipelineFailed, match=rf"another message before it.*incarnation = {{ {TOPIC} = 1 }}"):
        await scene.land(sink)
    assert len(sink.rows) == 10
    await scene.land(sink, start="latest", incarnation={TOPIC: 1})
    assert values(sink) == sorted(scene.produced)


async def test_a_log_goes_on_where_its_last_message_is_the_one_that_has_landed(
    broker: TankDevBroker, scene: Scene
) -> None:
    sink = MemorySink()
    for trimmed in (0, 11):  # the second time retention has deleted it
        scene.produce(10)
        await scene.land(sink)
        broker.roll(TOPIC)
        scene.produce(10)
        broker.trim(TOPIC, trimmed)
        await scene.land(sink)
    assert values(sink) == sorted(scene.produced)


async def test_a_start_that_leaves_out_partitions_lands_nothing(scene: Scene) -> None:
    sink = MemorySink()
    scene.produce(10, 0)
    scene.produce(10, 1)
    with pytest.raises(PipelineFailed, match=rf"start names no position for {TOPIC}/1"):
        await scene.land(sink, start={f"{TOPIC}/0": "1"})
    assert sink.rows == []
    await scene.land(sink, start={f"{TOPIC}/0": "6", f"{TOPIC}/1": "1"})
    assert len(sink.rows) == 15
    await scene.land(sink, start={f"{TOPIC}/0": "1"})  # it counts for logs of which nothing has landed
    assert len(sink.rows) == 15


async def test_a_leader_may_lag_behind_what_has_landed(broker: TankDevBroker, scene: Scene) -> None:
    sink = MemorySink()
    scene.produce(5)
    lagging = deepcopy(broker.topics[TOPIC][0])
    scene.produce(5)
    await scene.land(sink)
    current, broker.topics[TOPIC][0] = broker.topics[TOPIC][0], lagging
    async with scene.running(sink) as run:
        await run.until(lambda: (run.pipeline.status()["source"] or {}).get("errors"), "the doubt about the leader")
        broker.topics[TOPIC][0] = current
        scene.produce(5)
        await run.until(partial(landed, sink, 15), "what comes behind the landed messages")
    assert values(sink) == sorted(scene.produced)


async def test_messages_that_the_broker_has_lost_do_not_land(scene: Scene) -> None:
    """They were read and not committed when the log began again."""
    sink = MemorySink()
    scene.produce(10)
    async with scene.running(sink, policy=OPEN) as run:
        await run.until(lambda: sink.staged == 10, "an open roll")
        scene.recreate()
        new = scene.produce(5)
        await run.until(lambda: sink.opened == 2 and sink.staged == 5, "the new messages instead of them")
    assert values(sink) == sorted(new)


async def test_partitions_follow_their_leaders(broker: TankDevBroker, scene: Scene) -> None:
    sink = MemorySink()
    async with scene.running(sink) as run:
        for number, node in enumerate((1, 0, -1, 1, 0)):
            broker.move_leader(TOPIC, 0, node)
            scene.produce(10, 0)
            scene.produce(10, 1)
            expected = len(scene.produced) - (10 if node < 0 else 0)
            await run.until(partial(landed, sink, expected), f"the messages of round {number}")
            if node < 0:
                status = run.pipeline.status()
                assert "no leader" in str(status), status
    assert values(sink) == sorted(scene.produced)


@pytest.mark.parametrize(
    "status",
    [
        PartitionStatus.SYSTEM_FAULT,
        PartitionStatus.NO_LEADER,
        PartitionStatus.UNKNOWN_PARTITION,
    ],
)
async def test_an_error_of_one_partition_passes(broker: TankDevBroker, scene: Scene, status: PartitionStatus) -> None:
    scene.produce(10, 0)
    scene.produce(10, 1)
    broker.refuse_reads(status)
    sink = MemorySink()
    await scene.land(sink)
    assert values(sink) == sorted(scene.produced)


async def test_sequences_that_are_not_delivered_stop_the_log(broker: TankDevBroker, scene: Scene) -> None:
    scene.produce(10)
    broker.skip(TOPIC, 7)
    with pytest.raises(PipelineFailed, match="from 11 on, up to 17, and does not deliver them; on_unreadable"):
        await scene.land(MemorySink())


async def test_sequences_that_are_not_delivered_may_be_a_gap(broker: TankDevBroker, scene: Scene) -> None:
    sink = MemorySink()
    scene.produce(10)
    broker.skip(TOPIC, 7)
    await scene.land(sink, on_unreadable="continue")
    assert end(sink) == Position(18, 0)
    scene.produce(10)
    await scene.land(sink)
    assert values(sink) == sorted(scene.produced)


class PatternScene(Scene):
    """Topics by a pattern instead of the one of the scene."""

    def configured(self, *_: Any, **__: Any) -> PipelineConfig:
        source = f'url = "{self.broker.url}", topics_pattern = "conf.*", start = "latest", metadata_max_age = "100ms"'
        return parse_config(f'[pipelines.p]\nsource = {{ {source} }}\nsink.type = "discard"\n').pipelines["p"]


async def test_a_pattern_finds_topics_that_come_later(broker: TankDevBroker) -> None:
    scene = PatternScene(broker, {})
    broker.create_topic("other")
    sink = MemorySink()
    async with scene.running(sink) as run:
        await run.assigned(sink)
        scene.produce(10)
        broker.create_topic("confirmed")
        broker.produce("confirmed", [b"a", b"b"])
        broker.produce("other", [b"c"])
        await run.until(lambda: len(sink.rows) == 12, "the messages of both topics")
        broker.delete_topic("confirmed")
        scene.produce(10)
        await run.until(lambda: len(sink.rows) == 22, "the messages of the topic that stays")
        await run.until(lambda: "'gone': 1" in str(run.pipeline.status()), "the end of the other one")
    assert values(sink) == sorted([*scene.produced, b"a", b"b"])


async def test_the_lag_is_the_distance_of_sequences(scene: Scene) -> None:
    scene.produce(10)
    sink = MemorySink()
    async with scene.running(sink, policy=OPEN) as run:
        await run.until(lambda: sink.staged == 10, "an open roll")
        await run.until(lambda: (run.pipeline.status()["source"]["lag"] or {}).get("backlog_entries") == 10, "the lag")


async def test_a_topic_may_be_created_a_moment_later(broker: TankDevBroker, scene: Scene) -> None:
    broker.delete_topic(TOPIC)
    sink = MemorySink()
    async with scene.running(sink) as run:
        await run.until(lambda: broker.requests["DISCOVER_TOPICS"], "the first question")
        broker.create_topic(TOPIC, 2)
        scene.produce(3)
        await run.until(lambda: len(sink.rows) == 3, "the messages of the topic")
