"""Logs of Kafka that lose something, by truncation or retention: nothing is passed over in silence."""

from collections import Counter
from dataclasses import replace

import pytest

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire.position import Position, Span
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.kafka.requests import versions_of
from fastwire_daemon.runtime.budget import Level
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until


async def land_hundred(broker: KafkaDevBroker, pipe: KafkaPipe) -> None:
    """Store the first ten batches and land all of them."""
    broker.append("t", batches(0, 10))
    await pipe.got(100)
    pipe.commit()


async def landed_hundred(broker: KafkaDevBroker) -> KafkaPipe:
    """A life that has landed them, and is over."""
    async with reading(broker) as pipe:
        await land_hundred(broker, pipe)
    return pipe


async def test_truncation_stops_the_log() -> None:
    async with serving(2) as broker, reading(broker) as pipe:
        for partition in range(2):
            broker.append("t", batches(0, 10), partition)
        await pipe.got(200)
        pipe.commit()
        broker.truncate("t", 60)
        await until(lambda: pipe.count("stopped") == 1, "a stopped log", lambda: pipe.told)
        (stopped,) = [one for one in pipe.told if one[0] == "stopped"]
        assert "t" in stopped[2]
        assert "has landed, but the leader's log ends at 60" in stopped[2]
        broker.append("t", batches(10, 10), 1)
        await pipe.got(300)
        assert_once(pipe, 300)


async def test_truncation_under_a_log_that_grew_again() -> None:
    async with serving() as broker, reading(broker) as pipe:
        await land_hundred(broker, pipe)
        broker.truncate("t", 60)
        broker.append("t", batches(50, 20))  # at once: no offset of ours lies outside of the log
        await until(lambda: pipe.count("stopped") == 1, "a stopped log", lambda: pipe.told)
        (stopped,) = [one for one in pipe.told if one[0] == "stopped"]
        assert "has landed, but the leader's log ends at 60" in stopped[2]
        assert pipe.rows == 100


async def test_truncation_while_nobody_read() -> None:
    async with serving() as broker:
        first = await landed_hundred(broker)
        broker.truncate("t", 60)
        broker.append("t", batches(50, 20))
        async with reading(broker, coverage=first.coverage) as second:
            await until(lambda: second.count("stopped") == 1, "a stopped log", lambda: second.told)
            assert second.rows == 0


def restored(broker: KafkaDevBroker, kept: int, first: int) -> None:
    """Restore the log from a backup of its first ``kept`` rows; other records take the offsets behind them.

    Epochs are given again: nothing but the records tells that it is another log.
    """
    broker.truncate("t", kept, restored=True)
    broker.append("t", batches(first, 20))


# Brokers of 0.11 tell no epoch; those of 4.1 tell the same one as before, and the id of the topic, from their backup.
@pytest.mark.parametrize("release", ["0.11", "4.1"])
async def test_a_log_that_was_restored_and_has_grown_while_the_daemon_was_down(release: str) -> None:
    async with serving(release=release) as broker:
        first = await landed_hundred(broker)
        coverage = Checkpoint.decode(Checkpoint(1, first.coverage).encode(), 1).coverage
        restored(broker, 60, 50)
        async with reading(broker, coverage=coverage) as second:
            await until(lambda: second.count("stopped") == 1, "a stopped log", lambda: second.told)
            assert "the broker holds another record before it" in second.told[-1][2]
            assert second.rows == 0
        async with reading(broker, coverage=coverage, on_truncation="continue") as third:
            await third.got(260)  # the log that is there now, from its beginning, as another one
            await third.drained()
            assert set(landed(third, 0)) == set(values(*range(6), *range(50, 70)))


async def test_a_log_that_is_still_the_same_goes_on_behind_its_last_record() -> None:
    async with serving() as broker:
        first = await landed_hundred(broker)
        broker.append("t", batches(10, 2))
        async with reading(broker, coverage=first.coverage) as second:
            await second.got(20)
            await second.drained()
            assert set(landed(second, 0)) == set(values(10, 11))


def values(*numbers: int) -> Counter[bytes]:
    """Those of the rows of these batches."""
    return Counter(b"%d:%d" % (number, row) for number in numbers for row in range(10))


def landed(pipe: KafkaPipe, partition: int) -> Counter[bytes]:
    return Counter({value: count for (_, number, value), count in pipe.landed.items() if number == str(partition)})


# Who does not know epochs notices only what makes a log end before our position.
@pytest.mark.parametrize(("release", "grown"), [("0.11", False), ("4.1", False), ("4.1", True)])
async def test_what_is_lost_before_it_has_landed_never_lands(release: str, grown: bool) -> None:
    async with serving(2, release=release, nodes=2) as broker, reading(broker) as pipe:
        for partition in range(2):
            broker.append("t", batches(0, 10), partition)
        await pipe.got(200)
        pipe.commit()
        for partition in range(2):
            broker.append("t", batches(10, 10), partition)
        await pipe.got(400)
        broker.truncate("t", 150)
        if grown:
            broker.append("t", batches(50, 10))  # at once: no offset of ours lies outside of the log
        await until(lambda: pipe.count("diverged") == 1, "a void roll", lambda: pipe.told)
        await pipe.granted()
        broker.append("t", batches(60, 5))
        await until(lambda: b"64:9" in {value for _, _, value in pipe.values}, "the last record")
        await until(lambda: pipe.values["t", "1", b"19:9"] == 2, "the other partition again")
        await pipe.drained()
        instead = range(50, 60) if grown else ()
        assert landed(pipe, 0) == values(*range(15), *instead, *range(60, 65))
        assert landed(pipe, 1) == values(*range(20))
        assert pipe.count("stopped") == 0


@pytest.mark.parametrize("release", ["0.11", "4.1"])
async def test_reading_goes_on_behind_a_break(release: str) -> None:
    async with serving(release=release) as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker, on_truncation="continue") as first:
            await first.got(100)
            first.commit()
            broker.truncate("t", 60)
            await until(lambda: len(first.source.logs) == 2, "another log", lambda: first.told)
            broker.append("t", batches(50, 2))
            await first.got(120)
            await first.drained()
            old, new = first.source.logs
            assert new.incarnation == old.incarnation + "+1"
            assert first.coverage.intervals(old) == ((Position(0, -1), Position(100, 0)),)
            ((began, ended),) = first.coverage.intervals(new)
            assert (began.a, ended.a) == (60, 80)
            assert first.count("stopped") == 0
        broker.append("t", batches(60, 1))
        async with reading(broker, coverage=first.coverage, on_truncation="continue") as second:
            await second.got(10)
            await second.drained()
            assert second.source.logs == [new]
            assert set(landed(second, 0)) == set(values(60))


async def test_a_break_behind_a_break_before_anything_was_read() -> None:
    async with serving() as broker, reading(broker, on_truncation="continue") as pipe:
        await land_hundred(broker, pipe)
        broker.truncate("t", 80)
        await until(lambda: len(pipe.source.logs) == 2, "another log", lambda: pipe.told)
        await until(lambda: pipe.source.partitions[1].granted, "that it is read")
        broker.truncate("t", 60)
        broker.append("t", batches(50, 10))
        await until(lambda: pipe.values["t", "0", b"59:9"] == 1, "the last record", lambda: pipe.told)
        assert [one.incarnation.partition("+")[2] for one in pipe.source.logs] == ["", "1", "2"]
        await pipe.drained()
        assert landed(pipe, 0) == values(*range(10), *range(50, 60))


async def test_another_one_has_gone_on_behind_a_break() -> None:
    async with serving() as broker, reading(broker) as pipe:
        await land_hundred(broker, pipe)
        (log,) = pipe.source.logs
        behind = replace(log, incarnation=log.incarnation + "+1")
        pipe.coverage.add(Span(behind, Position(60, -1), Position(70, 0), 10))
        pipe.source.void()
        await pipe.got(130)
        assert pipe.source.logs == [log, behind]
        assert pipe.values == Counter(
            {("t", "0", value): 2 if value in values(7, 8, 9) else 1 for value in values(*range(10))}
        )


async def test_a_void_roll_of_a_log_that_has_grown_is_read_again() -> None:
    async with serving() as broker, reading(broker) as pipe:
        await pipe.granted()
        broker.append("t", batches(0, 20))
        await pipe.got(200)
        pipe.commit()
        broker.append("t", batches(20, 20))
        await pipe.got(400)
        pipe.drop_roll()
        pipe.source.void()
        await pipe.got(600)
        await pipe.drained()
        assert landed(pipe, 0) == values(*range(40))
        assert pipe.count("stopped") == 0


async def test_isolation_that_becomes_stricter_is_no_truncation() -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 5))
        broker.append("t", [encode_batch([Record(value=b"open")], producer_id=1, producer_epoch=0, transactional=True)])
        async with reading(broker, limits=FetchLimits(max_wait_ms=100, read_committed=False)) as first:
            await first.got(51)
            first.commit()
        async with reading(broker, coverage=first.coverage) as second:
            await second.granted()
            assert second.count("stopped") == 0


async def test_a_topic_that_gets_an_id_is_the_same_log() -> None:
    async with serving(release="2.4") as broker:
        first = await landed_hundred(broker)
        broker.versions = versions_of("4.1")
        broker.append("t", batches(10, 1))
        async with reading(broker, coverage=first.coverage) as second:
            await second.got(10)
            assert second.rows == 10
            assert second.source.logs == first.source.logs


async def test_retention_leaves_a_declared_gap() -> None:
    async with serving() as broker:
        first = await landed_hundred(broker)
        broker.append("t", batches(10, 10))
        broker.trim("t", 155)
        async with reading(broker, coverage=first.coverage) as second:
            await second.got(45)
            assert second.rows == 45
            (gap,) = [one.span.gap for one in second.firsts if one.span.gap is not None]
            assert gap.to == Position(155, -1)
            assert "retention" in gap.reason


async def test_retention_under_a_reader() -> None:
    async with serving() as broker, reading(broker) as pipe:
        await land_hundred(broker, pipe)
        pipe.source.on_budget(Level.STOP)
        broker.append("t", batches(10, 10))
        broker.trim("t", 150)
        pipe.source.on_budget(Level.FREE)
        broker.append("t", batches(20, 1))
        await until(lambda: b"20:9" in {value for _, _, value in pipe.values}, "the last record")
        assert pipe.once()


DAMAGES = {"last offset delta": 26, "length": 10, "first offset": 7, "payload": 80}


@pytest.mark.parametrize("partition_bytes", [1, 1 << 20])
@pytest.mark.parametrize("what", DAMAGES)
async def test_a_damaged_batch_costs_nothing_but_itself(what: str, partition_bytes: int) -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 30))
        broker.damage("t", 100, DAMAGES[what], 0x40)
        async with reading(broker, partition_bytes=partition_bytes) as pipe:
            await pipe.got(290)
            assert pipe.once()
            (letter,) = pipe.dead_letters
            assert letter.position.a == 110
            pipe.commit()
            assert pipe.coverage.end(pipe.log()) == Position(300, 0)


async def test_damage_at_the_end_of_the_log() -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 3))
        broker.damage("t", 20, 26, 0x40)
        async with reading(broker) as pipe:
            await pipe.got(20)
            await until(lambda: len(pipe.dead_letters) == 1, "a dead letter")
            broker.append("t", batches(3, 2))
            await pipe.got(40)
            assert pipe.once()
            assert len(pipe.dead_letters) == 1


async def test_a_new_leader_of_a_log_whose_records_have_all_been_deleted() -> None:
    """The record before the position is gone, and the position is not."""
    async with serving(nodes=2) as broker, reading(broker) as pipe:
        await land_hundred(broker, pipe)
        broker.trim("t", 100)
        (partition,) = pipe.source.partitions
        await until(lambda: partition.log_start == 100, "the begin of the log")
        for turn in range(2):
            broker.move_leader("t")
            broker.append("t", batches(100 + 10 * turn, 1))
            await pipe.got(110 + 10 * turn)
        assert pipe.count("revoked") == 0, pipe.told
