"""Topics that a source of any system finds: by pattern and by name, as they come, grow and go, seen or not."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.kafka.source_pipe import KafkaPipe
from tests.support.source_pipe import until
from tests.support.topic_scene import (
    ALL_GROUNDS,
    GROUNDS,
    Ground,
    KafkaGround,
    PulsarGround,
    TankGround,
    logs,
    stages,
    values,
)

ANY = pytest.mark.parametrize("ground", [PulsarGround(0.1), KafkaGround(protocol="none")], ids=["pulsar", "kafka"])
ALONE = pytest.mark.parametrize(
    "ground", [PulsarGround(0.1), KafkaGround(protocol="none"), TankGround()], ids=["pulsar", "kafka", "tank"]
)
GROUPS = pytest.mark.parametrize(
    "group",
    [{"protocol": "classic"}, {"protocol": "classic", "assignor": "range"}, {"protocol": "consumer"}],
    ids=["cooperative", "eager", "consumer"],
)


@pytest.fixture(autouse=True)
def _soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that Kafka's brokers do not know are not waited for."""
    monkeypatch.setattr("fastwire_daemon.systems.kafka.source.topics.MISSING_S", 0.3)
    monkeypatch.setattr("fastwire_daemon.systems.reading.pullsource.DOUBT_S", 0.05)


# --- as they come and go


@GROUNDS
async def test_topics_of_a_pattern_come_and_go_and_come_again(ground: Ground) -> None:
    async with ground.serving():
        ground.create("orders-a")
        ground.create("orders-b", 2)
        ground.add("orders-a", 0, 3)
        async with ground.reading(pattern="orders-.*", start="latest") as pipe:
            await until(lambda: len(pipe.assigned) == 3, "three partitions")
            await pipe.granted()
            assert logs(pipe) == {("orders-a", 0), ("orders-b", 0), ("orders-b", 1)}
            assert pipe.source.status()["topics"] == 2
            # What comes later is read from its beginning, whatever start says.
            ground.create("orders-c")
            ground.add("orders-c", 10, 2)
            ground.create("orders-d", 3)
            ground.add("orders-d", 20, 2, 2)
            ground.create("t2")
            ground.add("orders-a", 3)
            await pipe.got(50)
            later = {("orders-a", 3), ("orders-c", 10), ("orders-c", 11), ("orders-d", 20), ("orders-d", 21)}
            assert values(pipe) == later
            await until(lambda: len(pipe.source.logs) == 7, "all partitions of orders-d")
            pipe.commit()
            # One that is deleted is left without a word of complaint.
            ground.delete("orders-c")
            await until(lambda: stages(pipe, "orders-c") == {"gone"}, "a topic that is gone")
            assert pipe.source.status()["errors"] == {}
            assert pipe.source.status()["topics"] == 3
            assert (pipe.count("stopped"), pipe.failure) == (0, None)
            # Made again it goes on.
            ground.create("orders-c")
            ground.add("orders-c", 30)
            await pipe.got(60)
            assert ("orders-c", 30) in values(pipe)
            assert len(pipe.source.logs) == (7 if ground.same_log else 8)
            pipe.commit()
            await until(lambda: ground.behind("orders-c") == 0, "that all of the new topic is confirmed")
            ground.delete("orders-d")
            # An old broker that is asked for its partitions just then makes it again, without partitions.
            three = [one for one in pipe.source.partitions if one.log.topic.endswith("orders-d")]
            assert len(three) == 3
            await until(lambda: {one.stage.value for one in three} == {"gone"}, "three that are gone")
            ground.add("orders-b", 0)
            await pipe.got(70)
            assert pipe.once()
            assert (pipe.count("stopped"), pipe.failure) == (0, None)


@ALL_GROUNDS
async def test_a_pattern_that_nothing_matches_yet(ground: Ground) -> None:
    async with ground.serving():
        async with ground.reading(pattern="x.*") as pipe:
            assert (pipe.source.logs, pipe.failure) == ([], None)
            assert await pipe.source.heads() == {}
            ground.create("x", 2)
            ground.add("x", 0, partition=1)
            await pipe.got(10)
            # And then nothing does again.
            ground.delete("x")
            await until(lambda: stages(pipe, "x") == {"gone"}, "a topic that is gone")
            ground.create("xx")
            ground.add("xx", 1)
            await pipe.got(20)


@GROUNDS
async def test_topics_of_the_broker_itself_are_left_out(ground: Ground) -> None:
    async with ground.serving():
        for name in ground.outsiders:
            ground.create(name)
            ground.add(name, 0)
        async with ground.reading(pattern=".*") as pipe:
            ground.create("x")
            ground.add("x", 0)
            await pipe.got(10)
            assert logs(pipe) == {("t", 0), ("x", 0)}


async def see_partitions_added(ground: Ground, **chosen: str) -> None:
    async with ground.serving(2):
        async with ground.reading(**chosen, start="latest") as pipe:
            await until(lambda: len(pipe.assigned) == 2, "two partitions")
            await pipe.granted()
            ground.add("t", 0)
            await pipe.got(10)
            ground.grow("t", 4)
            ground.add("t", 0, 4, 3)
            await pipe.got(50)
            assert pipe.once()


@ALL_GROUNDS
async def test_partitions_are_added(ground: Ground) -> None:
    await see_partitions_added(ground, pattern="t")


@ALONE
async def test_partitions_are_added_to_a_named_topic(ground: Ground) -> None:
    await see_partitions_added(ground)


@ALL_GROUNDS
async def test_what_happens_while_the_connection_is_lost_is_seen_afterwards(ground: Ground) -> None:
    async with ground.serving() as broker:
        ground.create("gone")
        async with ground.reading(pattern=".*") as pipe:
            await until(lambda: len(pipe.assigned) == 2, "two topics")
            await pipe.granted()
            await broker.stop()
            ground.create("new")
            ground.add("new", 0)
            ground.delete("gone")
            await broker.start(port=broker.port)
            await pipe.got(10)
            await until(lambda: stages(pipe, "gone") == {"gone"}, "a topic that is gone")


@ALL_GROUNDS
async def test_until_end_does_not_wait_for_what_is_gone(ground: Ground) -> None:
    async with ground.serving():
        ground.create("u")
        ground.add("t", 0)
        ground.add("u", 0)
        async with ground.reading(pattern=".*", started=False) as pipe:
            pipe.auto = False
            await pipe.start()
            heads = await pipe.source.heads()
            assert len(heads) == 2
            ground.delete("u")
            await until(lambda: stages(pipe, "u") == {"gone"}, "a topic that is gone")
            (left,) = await pipe.source.unfinished(heads, pipe.coverage)
            assert pipe.source.logs[left].topic.rpartition("/")[2] == "t"


# --- what was added while nobody was there

SOON = (datetime.now(UTC) + timedelta(hours=12)).isoformat(timespec="seconds")


@ANY
@pytest.mark.parametrize("start", ["latest", SOON], ids=["latest", "soon"])
async def test_a_partition_added_while_we_were_away_is_read_from_its_beginning(ground: Ground, start: str) -> None:
    async with ground.serving(3):
        ground.create("u")
        for topic, number in (("t", 1), ("t", 2), ("u", 0)):
            ground.add(topic, 0, partition=number)
        coverage = ground.known(("t", 0), ("t", 1))
        async with ground.reading(pattern="[tu]", start=start, coverage=coverage) as pipe:
            await until(lambda: len(pipe.assigned) == 4, "four partitions")
            await pipe.granted()
            ground.add("u", 1)
            # The pattern knows a topic, so the other one has come since.
            await pipe.got(40)
            assert values(pipe) == {("t", 0), ("u", 0), ("u", 1)}


@ALONE
async def test_a_partition_below_one_that_is_known_was_there_before(ground: Ground) -> None:
    async with ground.serving(2):
        ground.add("t", 0)
        async with ground.reading(start="latest", coverage=ground.known(("t", 1))) as pipe:
            await until(lambda: len(pipe.assigned) == 2, "two partitions")
            await pipe.granted()
            ground.add("t", 1)
            await pipe.got(10)
            assert values(pipe) == {("t", 1)}


@ALONE
@pytest.mark.parametrize("known", ["t2", "x"])
async def test_a_topic_added_to_a_pattern_while_we_were_away(ground: Ground, known: str) -> None:
    async with ground.serving():
        ground.add("t", 0)
        coverage = ground.known((known, 0))
        async with ground.reading(pattern="t.*", start="latest", coverage=coverage) as pipe:
            await until(lambda: len(pipe.assigned) == 1, "a topic")
            await pipe.granted()
            ground.add("t", 1)
            await pipe.got(10)
            await until(lambda: ("t", 1) in values(pipe), "what came last")
            assert (("t", 0) in values(pipe)) is (known == "t2")


# --- Kafka's own


@GROUPS
async def test_two_members_share_what_their_pattern_finds(group: dict[str, str]) -> None:
    ground = KafkaGround(**group)

    def granted(pipe: KafkaPipe) -> int:
        return sum(one.granted for one in pipe.source.partitions)

    async with ground.serving():
        async with ground.reading(pattern="x.*") as one, ground.reading(pattern="x.*|y") as two:
            assert isinstance(one, KafkaPipe) and isinstance(two, KafkaPipe)
            ground.create("x1", 3)
            ground.create("y", 2)
            # One of them leads, and has to know of what the other one reads.
            await until(lambda: granted(one) + granted(two) == 5, "all of them", lambda: (one.told, two.told))
            ground.create("x2", 4)
            await until(lambda: granted(one) + granted(two) == 9, "more of them", lambda: (one.told, two.told))
            await until(lambda: granted(one) >= 3 and granted(two) >= 3, "a share for each")
            for topic, partitions in (("x1", 3), ("x2", 4), ("y", 2)):
                for number in range(partitions):
                    ground.add(topic, 0, 3, number)
            await until(lambda: one.rows + two.rows == 270, "all rows", lambda: (one.rows, two.rows))
            assert not set(one.values) & set(two.values)
            one.commit()
            two.commit()
            ground.delete("x1")
            await until(lambda: "gone" in stages(one, "x1") | stages(two, "x1"), "a topic that is gone")
            await until(lambda: granted(one) + granted(two) == 6, "what is left")
            assert one.failure is two.failure is None
            assert (one.count("stopped"), two.count("stopped")) == (0, 0)


@GROUNDS
async def test_made_again_at_once(ground: Ground) -> None:
    async with ground.serving():
        ground.add("t", 0)
        async with ground.reading(pattern="t") as pipe:
            await pipe.got(10)
            pipe.commit()
            ground.delete("t")
            ground.create("t")
            ground.add("t", 1)
            await pipe.got(20)
            assert pipe.once()
            assert len(pipe.source.logs) == (1 if ground.same_log else 2)
            assert (pipe.count("stopped"), pipe.failure) == (0, None)
            pipe.commit()
            await until(lambda: ground.behind("t") == 0, "that all of it is confirmed")


@pytest.mark.parametrize("away", [False, True])
async def test_a_broker_that_has_forgotten_a_topic_for_a_while(away: bool) -> None:
    """Not at once is it gone; and should it come again it is the same log, in which nothing is read twice."""
    ground = KafkaGround(protocol="none")

    async with ground.serving() as broker:
        ground.add("t", 0)
        async with ground.reading(pattern=".*") as pipe:
            assert isinstance(pipe, KafkaPipe)
            await pipe.got(10)
            pipe.commit()
            topic = broker.topics.pop("t")
            await until(lambda: pipe.source._topics.in_doubt, "doubt")
            if away:
                await until(lambda: stages(pipe, "t") == {"gone"}, "a topic that is gone")
            assert ("gone" in stages(pipe, "t")) is away
            broker.topics["t"] = topic
            ground.add("t", 1)
            await pipe.got(20)
            assert pipe.once()
            assert len(pipe.source.logs) == 1
            assert pipe.count("revoked") == away


@pytest.mark.parametrize("by", ["pattern", "name"])
async def test_a_topic_made_again_while_we_were_away_is_read_from_its_beginning(by: str) -> None:
    ground = KafkaGround(protocol="none")

    async with ground.serving(2):
        coverage = ground.known(("t", 0), ("t", 1))
        ground.delete("t")
        ground.create("t", 2)
        ground.add("t", 0)
        chosen = {"pattern": "t"} if by == "pattern" else {}
        async with ground.reading(**chosen, start="latest", coverage=coverage) as pipe:
            await pipe.got(10)
