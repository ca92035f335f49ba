"""Topics that the Pulsar source finds, where that is not the same for all systems."""

from typing import Any

import pytest

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker
from fastwire_daemon.systems.reading.stage import Stage
from tests.support.hostile.pulsar import NeverAnswers
from tests.support.pulsar.source_scene import landed, reading, serving
from tests.support.source_pipe import entries, until
from tests.support.topic_scene import POLL_S, POLLED, WATCHED, logs, stages

C = pb.BaseCommand


def commands(broker: PulsarDevBroker) -> list[str]:
    return [word for one in broker.connections for word in one.commands]  # type: ignore[attr-defined]


# --- patterns


@pytest.mark.parametrize("watched", [True, False])
async def test_a_broker_that_tells_is_not_asked(watched: bool) -> None:
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


async def test_names_of_partitions_without_a_partitioned_topic_are_topics() -> None:
    async with serving() as broker:
        broker.create_topic("lone-partition-3")
        broker.append("lone-partition-3", entries(0, 1))
        async with reading(broker, pattern="lone.*") as pipe:
            await pipe.got(10)
            assert logs(pipe) == {("lone", 3)}
            broker.delete_topic("lone-partition-3")
            await until(lambda: stages(pipe, "lone") == {"gone"}, "nothing left")
            # Now it becomes a partitioned topic, which has a partition of that number, too.
            broker.create_topic("lone", 4)
            broker.append("lone-partition-3", entries(1, 1))
            await pipe.got(20)
            assert len(pipe.source.logs) == 4


async def test_a_topic_is_made_again_with_partitions() -> None:
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


async def test_a_list_that_is_not_the_brokers_is_asked_for_anew() -> None:
    class Forgetful(PulsarDevBroker):
        """Tells the right hash, and only half of what has changed."""

        class connection(PulsarConnection):  # noqa: N801
            def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
                if kind == C.WATCH_TOPIC_UPDATE:
                    del parts["watchTopicUpdate"].new_topics[:]
                super().send(kind, **parts)

    async with serving(Forgetful()) as broker:
        async with reading(broker, pattern=".*", partition_poll_s=60.0) as pipe:
            await pipe.granted()
            broker.create_topic("new")
            broker.append("new", entries(0, 1))
            await pipe.got(10)


async def test_a_listed_topic_that_is_not_there_ends_nothing() -> None:
    class Late(PulsarDevBroker):
        """Lists a topic whose deletion it knows of elsewhere."""

        def topic_names(self) -> list[str]:
            return sorted({*super().topic_names(), *self.ghosts})

        ghosts: tuple[str, ...] = ("persistent://public/default/ghost",)

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


async def test_a_topic_that_is_gone_while_it_is_waited_for() -> None:
    broker = NeverAnswers(C.SUBSCRIBE, times=1)
    async with serving(broker):
        async with reading(broker, pattern="t", started=False) as pipe:
            await pipe.start()
            await until(lambda: broker.hits == 1, "a question without an answer")
            broker.delete_topic("t")
            await until(lambda: stages(pipe, "t") == {"gone"}, "a topic that is gone")
            assert await pipe.source.heads() == {}
            broker.create_topic("t")
            broker.append("t", entries(0, 1))
            await pipe.got(10)


# --- what was added while nobody was there


async def test_another_incarnation_is_not_known() -> None:
    async with serving(partitions=2) as broker:
        broker.append("t-partition-1", entries(0, 1))
        coverage = landed(partition=0)
        async with reading(broker, start="latest", coverage=coverage, incarnation=1) as pipe:
            await pipe.granted()
            assert pipe.coverage.start(pipe.log(1)) == Position(*broker.positions("t-partition-1")[0][:2])


@pytest.mark.parametrize("start", ["latest", "earliest"])
async def test_first_positions_of_a_topic_are_told_together(start: str) -> None:
    """Else a crash in between would make old partitions look like new ones."""
    async with serving(NeverAnswers(C.SUBSCRIBE, times=1), partitions=3) as broker:
        async with reading(broker, start=start, operation_timeout_s=0.4) as pipe:
            await pipe.granted()
            groups = [len(one) - 1 for one in pipe.told if one[0] == "assigned"]
            assert groups == ([3] if start == "latest" else [2, 1])


async def test_a_partition_that_cannot_be_had_does_not_hold_the_others_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastwire_daemon.systems.pulsar.source.firstposition.TOGETHER_S", 0.2)

    async with serving(NeverAnswers(C.SUBSCRIBE, times=1), partitions=3) as broker:
        async with reading(broker, start="latest", operation_timeout_s=60.0) as pipe:
            await until(lambda: len(pipe.assigned) == 2, "two of three")


# --- brokers that are asked too much


async def test_too_many_requests_are_asked_again() -> None:
    async with serving(partitions=100, lookup_delay_s=0.02, most_lookups=10) as broker:
        async with reading(broker) as pipe:
            await pipe.granted()
            assert broker.most_lookups == 10
            assert pipe.failure is None
            assert pipe.source.status()["errors"] == {}


async def test_questions_never_come_all_at_once() -> None:
    async with serving(partitions=200, lookup_delay_s=0.02) as broker:
        async with reading(broker) as pipe:
            await pipe.granted()
            assert 1 < broker.most_lookups <= 50


async def test_one_topic_of_many_that_is_refused_for_now_is_asked_for_again() -> None:
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

    async with serving(Busy()) as broker:
        for name in ("u", "v"):
            broker.create_topic(name)
        async with reading(broker, "t", "u", "v") as pipe:
            await pipe.granted()
            assert len(pipe.source.logs) == 3
            # Whoever has answered is not asked once more.
            assert commands(broker).count("PARTITIONED_METADATA") == 3 + 3
