"""A Pulsar source asks for no more than there is room for, in the pipeline and in memory."""

import asyncio
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Position
from fastwire.wire.pool import Pool
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.systems.pulsar.source import PulsarSource
from fastwire_daemon.systems.reading import clustered
from tests.support.pulsar.round_trip import round_trips
from tests.support.pulsar.source_scene import reading, serving
from tests.support.source_pipe import entries, entry, until


async def test_a_full_pipeline_stops_reading_until_it_has_room() -> None:
    async with serving() as broker:
        async with reading(broker, most_permits=100_000) as pipe:
            await pipe.granted()
            pipe.room = False
            broker.append("t", entries(0, 400, rows=100, size=500))  # 20 MB
            await until(lambda: pipe.rows > 0, "a first chunk")
            stuck = pipe.rows
            async with reading(broker, subscription="other", most_permits=100_000) as other:
                await other.got(40_000)  # as long as that takes
            assert pipe.rows == stuck < 40_000
            assert pipe.source.status()["connections"][0]["paused"] == ["QUEUE"]
            pipe.room = True
            pipe.source.resume()
            await pipe.got(40_000)
            assert pipe.once()


async def test_a_connection_that_is_not_read_for_long_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clustered, "TELL_HELD_S", 0.05)

    with caplog.at_level(logging.INFO, "fastwire.source"):
        async with serving() as broker, reading(broker) as pipe:
            await pipe.granted()
            of_broker = pipe.source.status()["connections"][0]
            assert of_broker["held_s"] == 0
            pipe.source.on_budget(Level.STOP)
            await until(lambda: "nothing is read" in caplog.text, "a line")
            assert pipe.source.status()["connections"][0]["held_s"] > 0
            assert "reading goes on" not in caplog.text
            pipe.source.on_budget(Level.FREE)
            await until(lambda: "reading goes on" in caplog.text, "another line")
            assert pipe.source.status()["connections"][0]["held_s"] == 0
    (told,) = (record for record in caplog.records if record.message == "nothing is read")
    assert told.__dict__["fields"]["why"] == "the memory budget is used up"


async def test_scarce_memory_stops_asking_and_then_reading() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 10))
        async with reading(broker, most_permits=100) as pipe:
            await pipe.got(100)
            await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")
            pipe.source.on_budget(Level.HOLD)
            broker.append("t", entries(10, 30))
            await pipe.got(200)
            await round_trips(broker)
            assert pipe.rows == 200  # what was granted, and no more
            assert broker.consumers("t", "s")[0].permits == 0
            pipe.source.on_budget(Level.STOP)
            assert pipe.source.status()["connections"][0]["paused"] == ["MEMORY"]
            pipe.source.on_budget(Level.HOLD)
            assert pipe.source.status()["connections"][0]["paused"] == []
            assert pipe.rows == 200
            pipe.source.on_budget(Level.FREE)
            await pipe.got(400)
            await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")


async def test_while_nothing_is_read_the_connection_lives() -> None:
    async with serving(keep_alive_s=0.2) as broker:
        async with reading(broker, keep_alive_s=0.2) as pipe:
            await pipe.granted()
            link = next(iter(pipe.source.cluster.links.values()))
            pipe.source.on_budget(Level.STOP)
            for _ in range(12):
                # Ten seconds in the life of this test.
                link.connection._suspended_ping_at = 0.0
                await until(lambda: link.connection._suspended_ping_at, "a ping")
            pipe.source.on_budget(Level.FREE)
            broker.append("t", entries(0, 5))
            await pipe.got(50)
            assert pipe.count("revoked") == 0


async def test_answers_are_read_while_the_pipeline_waits_for_them() -> None:
    async with serving() as broker:
        broker.create_topic("u")
        async with reading(broker, "u", "t", start="latest", most_permits=2000) as pipe:
            await pipe.granted()
            broker.append("t", entries(0, 3))
            pipe.auto = False
            broker.close_consumers("t", "s")
            await until(lambda: len(pipe.assigned) == 3, "a second assignment")
            pipe.room = False
            broker.append("u", entries(0, 500))
            await until(lambda: pipe.source.status()["connections"][0]["paused"] == ["QUEUE"], "a full pipeline")
            broker.append("u", entries(500, 500))
            # As if nothing was known of t: where it begins takes a seek, whose answer comes behind the records.
            async with asyncio.timeout(60):
                (first,) = await pipe.source.resolve(pipe.assigned[2:], Coverage())
            assert first.span.start == Position(*broker.positions("t")[-1][:2])
            assert pipe.source.status()["connections"][0]["paused"] == ["QUEUE"]
            assert pipe.rows <= 5000 + 2000 + 10  # what was granted, and no more
            pipe.room = True
            pipe.source.resume()
            await pipe.got(10_000)


async def test_permits_shrink_when_entries_are_large() -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 30, rows=1, size=1_000_000))
        async with reading(broker, pool=Pool(64 << 20)) as pipe:
            await pipe.got(30)
            await until(lambda: pipe.source.partitions[0].consumer.permits.window == 16, "a small window")


async def test_permits_stay_when_entries_are_large_batches() -> None:
    """The size of a message is that of its entry by the messages in it, from the first look on."""
    async with serving() as broker:
        broker.append("t", entries(0, 30, rows=100, size=1_000))
        async with reading(broker, pool=Pool(64 << 20)) as pipe:
            await pipe.got(3_000)
            await until(lambda: pipe.source._watch._seen, "a look")
            assert pipe.source.partitions[0].consumer.permits.window == pipe.source.most_permits


@pytest.mark.parametrize("kind", ["failover", "shared"])
async def test_an_entry_above_a_quarter_of_the_budget_stops_its_log_alone(kind: str) -> None:
    """It has arrived on the connection of all partitions, which stays; its bytes are never in memory."""
    async with serving(partitions=2, max_message_size=40 << 20) as broker:
        broker.append("t-partition-0", [*entries(0, 2), entry(2, rows=1, size=17 << 20), *entries(3, 2)])
        broker.append("t-partition-1", entries(0, 5))
        async with reading(broker, pool=Pool(64 << 20), subscription_type=kind) as pipe:
            await pipe.got(70)
            await until(lambda: pipe.count("stopped") == 1, "a stop", lambda: pipe.told)
            (text,) = [one[2] for one in pipe.told if one[0] == "stopped"]
            ledger, place, _ = broker.positions("t-partition-0")[2]
            assert f"{pipe.log(0)}: entry {ledger}:{place} cannot be received" in text
            assert "more than 16777216, a quarter of the memory budget" in text and "daemon.memory" in text
            assert "on_corrupt" not in text
            broker.append("t-partition-1", entries(5, 5))
            await pipe.got(120)
            assert len(pipe.source.cluster.links) == 1 and pipe.dead_letters == []
            pipe.commit()
            await until(lambda: broker.backlog("t-partition-1", "s") == 0, "acknowledgements of the other log")
            assert broker.backlog("t-partition-0", "s") >= 3
            assert pipe.pool.peak < 32 << 20


class FakeLink:
    def __init__(self, connection: Any) -> None:
        self.connection = connection


def link(*, awaiting: bool = True) -> Any:
    return FakeLink(SimpleNamespace(awaiting=awaiting))


def test_links_are_read_beyond_the_budget_only_for_partitions_that_are_resolved() -> None:
    """60 links expected the answer of a question that nobody waited for, and read 480 MB of records before it."""
    links = [link(), link(), link(awaiting=False)]
    partitions = [SimpleNamespace(link=each) for each in (*links, None)]
    cluster = SimpleNamespace(links=dict(enumerate(links)))

    def answering(*resolving: int) -> list[Any]:
        source: Any = SimpleNamespace(_resolving=Counter(resolving), partitions=partitions, cluster=cluster)
        found = PulsarSource._answering(source)
        return [number for number, each in enumerate(links) if any(each is one for one in found)]

    assert answering() == []
    assert answering(0) == [0]
    assert answering(0, 2) == [0]
    assert answering(3) == [0, 1], "any of them may be asked where its broker is"
