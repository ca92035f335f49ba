"""Topics that are deleted and created again: another topic id is another log, read from its beginning."""

from collections.abc import Mapping
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.position import Log, Position, Span
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.systems.source import SourceFailed
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until


async def test_a_topic_that_is_made_again_is_a_new_log() -> None:
    async with serving() as broker, reading(broker) as pipe:
        broker.append("t", batches(0, 10))
        broker.move_leader("t")
        await pipe.got(100)
        broker.delete_topic("t")
        broker.create_topic("t")
        broker.append("t", batches(50, 5))
        await pipe.got(150)
        assert_once(pipe, 150)
        old, new = pipe.source.logs
        assert (old.partition, new.partition) == ("0", "0")
        assert old.incarnation != new.incarnation
        (stopped,) = [one for one in pipe.told if one[0] == "stopped"]
        assert "deleted and made again" in stopped[2]


def make_again(broker: KafkaDevBroker, offset: int) -> None:
    """Delete the topic, make it again with 100 records; then the old one's ``offset`` is committed."""
    broker.delete_topic("t")
    broker.create_topic("t")
    broker.append("t", batches(50, 10))
    broker.group("g").offsets["t", 0] = offset, -1, ""


async def landed(broker: KafkaDevBroker, count: int) -> Coverage:
    """Append ``count`` batches, and read them all."""
    async with reading(broker) as pipe:
        broker.append("t", batches(0, count))
        await pipe.got(count * 10)
        await pipe.drained()
        return pipe.coverage


async def test_an_old_commit_hides_no_record_of_a_topic_that_is_made_again() -> None:
    async with serving() as broker, reading(broker) as pipe:
        broker.append("t", batches(0, 10))
        await pipe.got(100)
        await pipe.drained()
        make_again(broker, 30)
        await pipe.got(200)
        assert_once(pipe, 200)


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_an_old_commit_hides_no_record_of_a_topic_that_was_made_again_while_away(start: str) -> None:
    async with serving() as broker:
        coverage = await landed(broker, 10)
        make_again(broker, 30)
        async with reading(broker, coverage=coverage, start=start) as again:
            await again.got(100)
            assert_once(again, 100)


async def test_a_commit_beyond_all_that_landed_of_a_deleted_topic_is_that_of_the_new_one() -> None:
    async with serving() as broker:
        coverage = await landed(broker, 2)
        make_again(broker, 30)
        async with reading(broker, coverage=coverage) as again:
            await again.got(70)
            assert_once(again, 70)


# --- the end


async def unfinished(pipe: KafkaPipe) -> list[int]:
    return list(await pipe.source.unfinished(await pipe.source.heads(), pipe.coverage))


async def assert_not_at_the_end_before_all_is_there(pipe: KafkaPipe) -> None:
    """The log has 100 records. Nothing is granted until the question for the end was answered."""
    pipe.auto = False
    await pipe.start()
    await until(lambda: bool(pipe.assigned), "an assignment")
    assert len(await unfinished(pipe)) == 1
    await pipe.take(pipe.assigned)
    assert len(await unfinished(pipe)) == 1
    await pipe.got(100)
    pipe.commit()
    assert await unfinished(pipe) == []
    await pipe.drained()
    assert list(await pipe.source.unfinished(await pipe.source.heads(), Coverage())) == []


@pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
async def test_an_old_commit_is_not_the_end_of_a_topic_that_was_made_again(protocol: str) -> None:
    async with serving() as broker:
        coverage = await landed(broker, 20)
        make_again(broker, 150)
        async with reading(broker, started=False, coverage=coverage, protocol=protocol) as again:
            await assert_not_at_the_end_before_all_is_there(again)


@pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
async def test_a_commit_beyond_the_log_is_not_its_end(protocol: str) -> None:
    """A new dataset of a group that has read the deleted topic."""
    async with serving() as broker:
        make_again(broker, 150)
        async with reading(broker, started=False, protocol=protocol) as pipe:
            await assert_not_at_the_end_before_all_is_there(pipe)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_stand_by_does_not_take_an_old_commit_for_the_end(protocol: str) -> None:
    """Another member has the only partition, of which nothing has landed yet."""
    async with serving() as broker:
        coverage = await landed(broker, 20)
        make_again(broker, 150)
        async with (
            reading(broker, started=False, coverage=coverage.copy(), protocol=protocol) as member,
            reading(broker, started=False, coverage=coverage.copy(), protocol=protocol) as stand_by,
        ):
            member.auto = False
            await member.start()
            await until(lambda: bool(member.assigned), "an assignment")
            await stand_by.start()
            await until(lambda: stand_by.source.standing_by, "a stand-by")
            assert len(await unfinished(stand_by)) == 1
            await member.take(member.assigned)
            await member.got(100)
            member.commit()
            assert list(await stand_by.source.unfinished(await stand_by.source.heads(), member.coverage)) == []


# --- the start


async def test_positions_of_the_configuration_are_not_those_of_a_topic_that_is_made_again() -> None:
    start: dict[str, Any] = {"start": {"t-0": "80"}}
    async with serving() as broker:
        broker.append("t", batches(0, 20))
        async with reading(broker, **start) as pipe:
            await pipe.got(120)
            make_again(broker, -1)
            await pipe.got(220)
            assert_once(pipe, 220)
            pipe.commit()
        make_again(broker, -1)
        async with reading(broker, coverage=pipe.coverage, **start) as again:
            await again.got(100)
            assert_once(again, 100)


async def test_positions_of_the_configuration_are_those_of_an_added_partition() -> None:
    async with serving() as broker, reading(broker, start={"t-0": "0", "t-1": "20"}) as pipe:
        await pipe.granted()
        broker.grow_topic("t", 2)
        broker.append("t", batches(0, 5), 1)
        await pipe.got(30)
        assert_once(pipe, 30)


async def test_a_start_that_leaves_out_partitions_lands_nothing() -> None:
    async with serving(partitions=2) as broker:
        broker.append("t", batches(0, 5), 0)
        pipe = KafkaPipe(broker, start={"t-0": "0"})
        with pytest.raises(SourceFailed, match="start names no position for t-1"):
            await pipe.start()
        await pipe.close()
        assert pipe.rows == 0


# --- brokers without topic ids


async def test_a_log_without_an_id_does_not_go_on_in_a_topic_that_is_made_again() -> None:
    """The dataset is from brokers without ids; those of today have them."""
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        old = Log("kafka", "c", "t", "0", "0")
        coverage = Coverage()
        coverage.add(Span(old, Position(0, -1), Position(50, -1), 50))
        async with reading(broker, coverage=coverage) as pipe:
            await pipe.got(50)
            pipe.commit()
            broker.delete_topic("t")
            broker.create_topic("t")
            broker.append("t", batches(50, 20))
            await pipe.got(250)
            assert_once(pipe, 250)
            pipe.commit()
            assert pipe.coverage.end(old) == Position(100, 0)
            first, second = pipe.source.logs
            assert (first, second.incarnation == "0") == (old, False)
        async with reading(broker, coverage=pipe.coverage) as again:
            broker.append("t", batches(70, 1))
            await again.got(10)
            assert_once(again, 10)
            again.commit()
        broker.delete_topic("t")
        broker.create_topic("t")
        broker.append("t", batches(80, 20))
        async with reading(broker, coverage=again.coverage) as third:
            await third.got(200)
            assert_once(third, 200)


# --- a commit on its way


@pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
async def test_a_commit_that_fails_while_its_topic_is_made_again_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    async with serving(2) as broker, reading(broker, protocol=protocol) as pipe:
        commit, sent = pipe.source.cluster.commit, []

        async def fail_once(link: Any, group: str, offsets: Mapping[tuple[str, int], Any], *more: Any) -> Any:
            sent.append({place: offset for place, (offset, _) in offsets.items() if offset})
            if 100 not in sent[-1].values() or len(pipe.source.logs) == 4:
                return await commit(link, group, offsets, *more)
            broker.delete_topic("t")
            broker.create_topic("t", 2)
            await until(lambda: len(pipe.source.logs) == 4, "the partitions of the new topic")
            raise BrokerError(Code.NOT_COORDINATOR, "the group")

        monkeypatch.setattr(pipe.source.cluster, "commit", fail_once)
        for partition in range(2):
            broker.append("t", batches(0, 10), partition)
        await pipe.got(200)
        pipe.commit()
        await until(lambda: len(pipe.source.logs) == 4, "the partitions of the new topic")
        broker.append("t", batches(50, 2), 1)
        await pipe.got(220)
        await pipe.drained()
        assert [one for one in sent if one] == [{("t", 0): 100, ("t", 1): 100}, {("t", 1): 20}]
