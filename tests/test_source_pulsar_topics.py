"""Topics that the Pulsar source finds: by pattern and by name, as they come, grow and go."""

from typing import Any

import pytest

from fastwire.position import PULSAR_EARLIEST, Coverage, Log, Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker
from fastwire_daemon.sources.pulsar.host import Stage
from tests.hostile.pulsar import NeverAnswers
from tests.source_pipe import Pipe, entries, until
from tests.source_scene import FULL, reading, run, serving

C = pb.BaseCommand

WATCHED = pb.FeatureFlags(supports_topic_watchers=True, supports_get_partitioned_metadata_without_auto_creation=True)
POLLED = pb.FeatureFlags()
POLL_S = 0.1

# A broker that tells, one that says it would and does not, one that has never heard of it.
WAYS = pytest.mark.parametrize(
    ("options", "poll_s"),
    [
        pytest.param({"feature_flags": WATCHED}, 60.0, id="watched"),
        pytest.param({"feature_flags": WATCHED, "watchable": False}, POLL_S, id="refused"),
        pytest.param({"feature_flags": POLLED}, POLL_S, id="polled"),
    ],
)


def logs(pipe: Pipe) -> set[tuple[str, str]]:
    return {(log.topic.rpartition("/")[2], log.partition) for log in pipe.source.logs}


def stages(pipe: Pipe, *names: str) -> set[Stage]:
    return {one.stage for one in pipe.source.partitions if one.log.topic.rpartition("/")[2] in names}


def commands(broker: PulsarDevBroker) -> list[str]:
    return [word for one in broker.connections for word in one.commands]  # type: ignore[attr-defined]


def known(*partitions: tuple[str, int], incarnation: str = "0") -> Coverage:
    """A Coverage that knows these partitions, of which nothing has landed."""
    coverage = Coverage()
    for topic, partition in partitions:
        log = Log("pulsar", "c", f"persistent://public/default/{topic}", str(partition), incarnation)
        coverage.add(Span(log, PULSAR_EARLIEST, PULSAR_EARLIEST, 0))
    return coverage


def values(pipe: Pipe) -> set[tuple[str, int]]:
    """Topic and entry of everything that came."""
    return {(topic.rpartition("/")[2], int(value.partition(b":")[0])) for topic, _, value in pipe.values}


# --- patterns


@WAYS
def test_topics_of_a_pattern_come_and_go_and_come_again(options: dict[str, Any], poll_s: float) -> None:
    async def main() -> None:
        async with serving(**options) as broker:
            broker.create_topic("orders-a")
            broker.create_topic("orders-b", 2)
            for name in ("__change_events", "orders-x__transaction_pending_ack", "persistent://public/other/orders-c"):
                broker.create_topic(name)
            broker.append("orders-a", entries(0, 3))
            async with reading(broker, pattern="orders-.*", start="latest", partition_poll_s=poll_s) as pipe:
                await pipe.granted()
                assert logs(pipe) == {("orders-a", "-1"), ("orders-b", "0"), ("orders-b", "1")}
                assert pipe.source.status()["topics"] == 2
                # What comes later is read from its beginning, whatever start says.
                broker.create_topic("orders-c")
                broker.append("orders-c", entries(10, 2))
                broker.create_topic("orders-d", 3)
                broker.append("orders-d-partition-2", entries(20, 2))
                broker.create_topic("t2")
                broker.append("orders-a", entries(3, 1))
                await pipe.got(50)
                assert values(pipe) == {
                    ("orders-a", 3),
                    ("orders-c", 10),
                    ("orders-c", 11),
                    ("orders-d", 20),
                    ("orders-d", 21),
                }
                await until(lambda: len(pipe.source.logs) == 7, "all partitions of orders-d")
                pipe.commit()
                # One that is deleted is left without a word of complaint.
                broker.delete_topic("orders-c")
                await until(lambda: stages(pipe, "orders-c") == {Stage.GONE}, "a topic that is gone")
                assert pipe.source.status()["errors"] == {}
                assert (pipe.count("stopped"), pipe.failure) == (0, None)
                assert not broker.topic_exists("persistent://public/default/orders-c")
                # Made again it goes on, in the same log.
                broker.create_topic("orders-c")
                broker.append("orders-c", entries(30, 1))
                await pipe.got(60)
                assert ("orders-c", 30) in values(pipe)
                assert len(pipe.source.logs) == 7
                pipe.commit()
                await until(lambda: broker.backlog("orders-c", "s") == 0, "acks of the new topic")
                broker.delete_topic("orders-d")
                await until(lambda: stages(pipe, "orders-d") == {Stage.GONE}, "three that are gone")

    run(main)


@pytest.mark.parametrize("watched", [True, False])
def test_a_broker_that_tells_is_not_asked(watched: bool) -> None:
    async def main() -> None:
        flags = WATCHED if watched else POLLED
        async with serving(feature_flags=flags) as broker:
            async with reading(broker, pattern=".*", partition_poll_s=60.0 if watched else POLL_S) as pipe:
                await pipe.granted()
                broker.create_topic("u")
                await until(lambda: len(pipe.source.logs) == 2, "another topic")
                await pipe.granted()
                asked = commands(broker)
                assert asked.count("WATCH_TOPIC_LIST") == watched
                assert (asked.count("GET_TOPICS_OF_NAMESPACE") > 0) is not watched
                # Asked is by the way that does not make what it asks about.
                assert not broker.topic_exists("persistent://public/default/.*")

    run(main)


@WAYS
def test_a_pattern_that_nothing_matches_yet(options: dict[str, Any], poll_s: float) -> None:
    async def main() -> None:
        async with serving(**options) as broker:
            async with reading(broker, pattern="a/b/x.*", partition_poll_s=poll_s) as pipe:
                assert (pipe.source.logs, pipe.failure) == ([], None)
                assert await pipe.source.heads() == {}
                broker.create_topic("a/b/x", 2)
                broker.append("a/b/x-partition-1", entries(0, 1))
                await pipe.got(10)

    run(main)


@WAYS
def test_topics_of_the_broker_itself_are_left_out(options: dict[str, Any], poll_s: float) -> None:
    async def main() -> None:
        async with serving(**options) as broker:
            broker.create_topic("a/b/__change_events")
            async with reading(broker, pattern="a/b/.*", partition_poll_s=poll_s) as pipe:
                broker.create_topic("a/b/__transaction_buffer_snapshot")
                broker.create_topic("a/b/x")
                broker.append("a/b/x", entries(0, 1))
                await pipe.got(10)
                assert [log.topic for log in pipe.source.logs] == ["persistent://a/b/x"]

    run(main)


@WAYS
def test_partitions_are_added(options: dict[str, Any], poll_s: float) -> None:
    async def main() -> None:
        async with serving(partitions=2, **options) as broker:
            async with reading(broker, pattern="t", start="latest", partition_poll_s=poll_s) as pipe:
                await pipe.granted()
                broker.append("t-partition-0", entries(0, 1))
                await pipe.got(10)
                broker.grow_topic("t", 4)
                broker.append("t-partition-3", entries(0, 4))
                await pipe.got(50)
                assert pipe.coverage.start(pipe.log(3)) == PULSAR_EARLIEST

    run(main)


def test_new_partitions_are_found_and_read_from_their_beginning() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            async with reading(broker, start="latest", partition_poll_s=0.1) as pipe:
                await pipe.granted()
                broker._partitioned[FULL] = 3
                broker.create_topic("t-partition-2")
                broker.append("t-partition-2", entries(0, 4))
                await pipe.got(40)
                assert pipe.coverage.start(pipe.log(2)) == PULSAR_EARLIEST
                await until(lambda: len(pipe.source.logs) == 3, "a third log")

    run(main)


def test_names_of_partitions_without_a_partitioned_topic_are_topics() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.create_topic("lone-partition-3")
            broker.append("lone-partition-3", entries(0, 1))
            async with reading(broker, pattern="lone.*") as pipe:
                await pipe.got(10)
                assert logs(pipe) == {("lone", "3")}
                broker.delete_topic("lone-partition-3")
                await until(lambda: stages(pipe, "lone") == {Stage.GONE}, "nothing left")
                # Now it becomes a partitioned topic, which has a partition of that number, too.
                broker.create_topic("lone", 4)
                broker.append("lone-partition-3", entries(1, 1))
                await pipe.got(20)
                assert len(pipe.source.logs) == 4

    run(main)


def test_a_topic_is_made_again_with_partitions() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 1))
            async with reading(broker, pattern="t") as pipe:
                await pipe.got(10)
                pipe.commit()
                broker.delete_topic("t")
                broker.create_topic("t", 2)
                broker.append("t-partition-1", entries(1, 1))
                await pipe.got(20)
                assert {(one.log.partition, one.stage) for one in pipe.source.partitions} == {
                    ("-1", Stage.GONE), ("0", Stage.READING), ("1", Stage.READING)
                }  # fmt: skip

    run(main)


def test_what_happens_while_the_connection_is_lost_is_seen_afterwards() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.create_topic("gone")
            async with reading(broker, pattern=".*", partition_poll_s=60.0) as pipe:
                await pipe.granted()
                await broker.stop()
                broker.create_topic("new")
                broker.append("new", entries(0, 1))
                broker.delete_topic("gone")
                await broker.start(port=broker.port)
                await pipe.got(10)
                await until(lambda: stages(pipe, "gone") == {Stage.GONE}, "a topic that is gone")

    run(main)


def test_a_list_that_is_not_the_brokers_is_asked_for_anew() -> None:
    class Forgetful(PulsarDevBroker):
        """Tells the right hash, and only half of what has changed."""

        class connection(PulsarConnection):  # noqa: N801
            def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
                if kind == C.WATCH_TOPIC_UPDATE:
                    del parts["watchTopicUpdate"].new_topics[:]
                super().send(kind, **parts)

        def accept(self) -> PulsarConnection:
            return self.connection(self)

    async def main() -> None:
        async with serving(Forgetful()) as broker:
            async with reading(broker, pattern=".*", partition_poll_s=60.0) as pipe:
                await pipe.granted()
                broker.create_topic("new")
                broker.append("new", entries(0, 1))
                await pipe.got(10)

    run(main)


def test_a_listed_topic_that_is_not_there_ends_nothing() -> None:
    class Late(PulsarDevBroker):
        """Lists a topic whose deletion it knows of elsewhere."""

        def topic_names(self) -> list[str]:
            return sorted({*super().topic_names(), *self.ghosts})

        ghosts: tuple[str, ...] = ("persistent://public/default/ghost",)

    async def main() -> None:
        broker = Late()
        async with serving(broker):
            broker.append("t", entries(0, 1))
            async with reading(broker, pattern=".*", partition_poll_s=POLL_S) as pipe:
                await pipe.got(10)
                ghost = next(one for one in pipe.source.partitions if one.log.topic.endswith("ghost"))
                await until(lambda: "TopicNotFound" in ghost.error, "a refusal")
                assert (pipe.failure, pipe.count("stopped")) == (None, 0)
                broker.ghosts = ()
                await until(lambda: ghost.stage is Stage.GONE, "the end of it")
                assert not broker.topic_exists(Late.ghosts[0])

    run(main)


def test_until_end_does_not_wait_for_what_is_gone() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.create_topic("u")
            broker.append("t", entries(0, 1))
            broker.append("u", entries(0, 1))
            async with reading(broker, pattern=".*", started=False) as pipe:
                pipe.auto = False
                await pipe.start()
                heads = await pipe.source.heads()
                assert len(heads) == 2
                broker.delete_topic("u")
                await until(lambda: stages(pipe, "u") == {Stage.GONE}, "a topic that is gone")
                (left,) = await pipe.source.unfinished(heads, pipe.coverage)
                assert pipe.source.logs[left].topic == FULL

    run(main)


def test_a_topic_that_is_gone_while_it_is_waited_for() -> None:
    async def main() -> None:
        broker = NeverAnswers(C.SUBSCRIBE, times=1)
        async with serving(broker):
            async with reading(broker, pattern="t", started=False) as pipe:
                await pipe.start()
                await until(lambda: broker.hits == 1, "a question without an answer")
                broker.delete_topic("t")
                await until(lambda: stages(pipe, "t") == {Stage.GONE}, "a topic that is gone")
                assert await pipe.source.heads() == {}
                broker.create_topic("t")
                broker.append("t", entries(0, 1))
                await pipe.got(10)

    run(main)


# --- what was added while nobody was there


@pytest.mark.parametrize("start", ["latest", "2030-01-01T00:00:00Z"])
def test_a_partition_added_while_we_were_away_is_read_from_its_beginning(start: str) -> None:
    async def main() -> None:
        async with serving(partitions=3) as broker:
            broker.create_topic("u")
            for name in ("t-partition-1", "t-partition-2", "u"):
                broker.append(name, entries(0, 1))
            coverage = known(("t", 0), ("t", 1))
            async with reading(broker, "t", "u", start=start, coverage=coverage) as pipe:
                await pipe.granted()
                assert pipe.coverage.start(pipe.log(2)) == PULSAR_EARLIEST
                assert pipe.coverage.start(pipe.log(-1)) == Position(*broker.positions("u")[0][:2])
                await pipe.got(20)
                assert values(pipe) == {("t", 0)}

    run(main)


def test_a_partition_below_one_that_is_known_was_there_before() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            broker.append("t-partition-0", entries(0, 1))
            async with reading(broker, start="latest", coverage=known(("t", 1))) as pipe:
                await pipe.granted()
                assert pipe.coverage.start(pipe.log(0)) == Position(*broker.positions("t-partition-0")[0][:2])

    run(main)


def test_another_incarnation_is_not_known() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            broker.append("t-partition-1", entries(0, 1))
            coverage = known(("t", 0))
            async with reading(broker, start="latest", coverage=coverage, incarnation=1) as pipe:
                await pipe.granted()
                assert pipe.coverage.start(pipe.log(1)) == Position(*broker.positions("t-partition-1")[0][:2])

    run(main)


@pytest.mark.parametrize("matching", [True, False])
def test_a_topic_added_to_a_pattern_while_we_were_away(matching: bool) -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 1))
            coverage = known(("t2" if matching else "x", -1))
            async with reading(broker, pattern="t.*", start="latest", coverage=coverage) as pipe:
                await pipe.granted()
                last = Position(*broker.positions("t")[0][:2])
                assert pipe.coverage.start(pipe.log()) == (PULSAR_EARLIEST if matching else last)

    run(main)


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_first_positions_of_a_topic_are_told_together(start: str) -> None:
    """Else a crash in between would make old partitions look like new ones."""

    async def main() -> None:
        async with serving(NeverAnswers(C.SUBSCRIBE, times=1), partitions=3) as broker:
            async with reading(broker, start=start, operation_timeout_s=0.4) as pipe:
                await pipe.granted()
                groups = [len(one) - 1 for one in pipe.told if one[0] == "assigned"]
                assert groups == ([3] if start == "latest" else [2, 1])

    run(main)


def test_a_partition_that_cannot_be_had_does_not_hold_the_others_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.sources.pulsar.beginning.TOGETHER_S", 0.2)

    async def main() -> None:
        async with serving(NeverAnswers(C.SUBSCRIBE, times=1), partitions=3) as broker:
            async with reading(broker, start="latest", operation_timeout_s=60.0) as pipe:
                await until(lambda: len(pipe.assigned) == 2, "two of three")

    run(main)


# --- brokers that are asked too much


def test_too_many_requests_are_asked_again() -> None:
    async def main() -> None:
        async with serving(partitions=100, lookup_delay_s=0.02, most_lookups=10) as broker:
            async with reading(broker) as pipe:
                await pipe.granted()
                assert broker.most_lookups == 10
                assert pipe.failure is None
                assert pipe.source.status()["errors"] == {}

    run(main)


def test_questions_never_come_all_at_once() -> None:
    async def main() -> None:
        async with serving(partitions=200, lookup_delay_s=0.02) as broker:
            async with reading(broker) as pipe:
                await pipe.granted()
                assert 1 < broker.most_lookups <= 50

    run(main)


def test_one_topic_of_many_that_is_refused_for_now_is_asked_for_again() -> None:
    class Busy(PulsarDevBroker):
        refusals = 0

        class connection(PulsarConnection):  # noqa: N801
            def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
                broker = self.broker
                assert isinstance(broker, Busy)
                answer = parts.get("partitionMetadataResponse")
                if answer is not None and broker.refusals < 3:
                    broker.refusals += 1
                    answer.response = pb.CommandPartitionedTopicMetadataResponse.Failed
                    answer.error, answer.message = pb.TooManyRequests, "later"
                super().send(kind, **parts)

        def accept(self) -> PulsarConnection:
            return self.connection(self)

    async def main() -> None:
        async with serving(Busy()) as broker:
            for name in ("u", "v"):
                broker.create_topic(name)
            async with reading(broker, "t", "u", "v") as pipe:
                await pipe.granted()
                assert len(pipe.source.logs) == 3
                # Whoever has answered is not asked once more.
                assert commands(broker).count("PARTITIONED_METADATA") == 3 + 3

    run(main)
