"""The Kafka source against the embedded broker, which checks offsets, epochs, sessions and manners."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.systems.source import SourceFailed
from tests.support.kafka.markers import encode_marker
from tests.support.kafka.source_pipe import KafkaPipe, batch, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until

# --- everything once


@pytest.mark.parametrize("release", ["0.11", "1.1", "2.1", "2.3", "2.4", "2.8", "3.3", "3.9", "4.1"])
async def test_all_partitions_once_and_all_offsets_committed(release: str) -> None:
    async with serving(4, release=release, nodes=2) as broker, reading(broker) as pipe:
        for partition in range(4):
            broker.append("t", batches(0, 30), partition)
        await pipe.got(1200)
        assert_once(pipe, 1200)
        await pipe.drained()


@pytest.mark.parametrize("cut_tails", [False, True])
async def test_small_answers(cut_tails: bool) -> None:
    async with serving(2, cut_tails=cut_tails, segment_batches=7) as broker:
        for partition in range(2):
            broker.append("t", batches(0, 50, size=100), partition)
        async with reading(broker, partition_bytes=4000) as pipe:
            await pipe.got(1000)
            assert_once(pipe, 1000)


@pytest.mark.parametrize("release", ["1.1", "4.1"])
async def test_sessions_of_many_idle_partitions(release: str) -> None:
    async with serving(120, release=release, nodes=2) as broker, reading(broker, session_above=20) as pipe:
        await pipe.granted()
        await until(lambda: len(broker.sessions) == 2, "a session with each node")
        for turn in range(3):
            for partition in (turn, 40, 41):
                broker.append("t", batches(turn, 1), partition)
            broker.move_leader("t", 40)
            await pipe.got((turn + 1) * 30)
            broker.forget_sessions()
        for partition in range(120):
            broker.append("t", batches(10, 2), partition)
        await pipe.got(90 + 2400)
        assert_once(pipe, 90 + 2400)
        await until(lambda: len(broker.sessions) == 2, "a session with each node again")
        await pipe.drained()


@pytest.mark.parametrize("compression", Compression)
async def test_codecs(compression: Compression) -> None:
    async with serving() as broker, reading(broker) as pipe:
        broker.append("t", [batch(number, compression=compression) for number in range(20)])
        await pipe.got(200)
        assert_once(pipe, 200)


async def test_committed_transactions_only() -> None:
    async with serving() as broker, reading(broker) as pipe:
        kept, gone = (
            encode_batch([Record(value=value)], producer_id=producer, producer_epoch=0, transactional=True)
            for value, producer in ((b"kept", 1), (b"gone", 2))
        )
        abort = encode_marker(commit=False, producer_id=2, producer_epoch=0, timestamp=0)
        broker.append("t", [kept, gone, gone, abort])
        assert broker.partition("t", 0).stable == 0
        broker.append("t", [encode_marker(commit=True, producer_id=1, producer_epoch=0, timestamp=0)])
        await pipe.got(1)
        broker.append("t", batches(0, 1))
        await pipe.got(11)
        assert {value for _, _, value in pipe.values} == {b"kept", *(b"0:%d" % row for row in range(10))}


# --- members of a group


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_two_members_share_and_hand_over(protocol: str) -> None:
    async with serving(4, nodes=2) as broker, reading(broker, protocol=protocol) as one:
        one.eager = True
        for partition in range(4):
            broker.append("t", batches(0, 10), partition)
        await one.got(400)
        one.commit()
        async with reading(broker, protocol=protocol, coverage=one.coverage) as two:
            two.eager = True
            await until(lambda: sum(each.granted for each in two.source.partitions) == 2, "half of them")
            await until(lambda: sum(each.granted for each in one.source.partitions) == 2, "the other half")
            for partition in range(4):
                broker.append("t", batches(10, 10), partition)
            await until(lambda: one.rows + two.rows == 800, "all of it", lambda: (one.rows, two.rows))
            assert (one.rows, two.rows) == (600, 200)
            assert not set(one.values) & set(two.values)
            two.commit()
        await one.granted()
        for partition in range(4):
            broker.append("t", batches(20, 10), partition)
        await until(lambda: one.rows + two.rows == 1200, "the rest", lambda: (one.rows, two.rows))
        await one.drained()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_without_a_partition_stands_by(protocol: str) -> None:
    async with serving(1) as broker, reading(broker, protocol=protocol) as one:
        one.eager = True
        assert not one.source.standing_by
        await one.granted()
        async with reading(broker, protocol=protocol, coverage=one.coverage) as two:
            two.eager = True
            await until(lambda: one.source.standing_by != two.source.standing_by, "one of the two stands by")
            reader = two if one.source.standing_by else one
            await until(lambda: reader.source.partitions[0].granted, "the other one reads")


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
async def test_a_static_member_that_comes_back_reads_what_is_new_to_it(assignor: str) -> None:
    """The coordinator gives it what its former life had, and asks nobody else: the member has to."""
    static: dict[str, Any] = {"protocol": "classic", "assignor": assignor, "session_timeout_s": 6.0}

    def granted(pipe: KafkaPipe) -> list[tuple[str, str]]:
        return sorted((one.log.topic, one.log.partition) for one in pipe.source.partitions if one.granted)

    async with serving(2) as broker:
        broker.create_topic("u", 4)
        async with reading(broker, "t", "u", instance="a", **static) as first:
            first.eager = True
            await first.granted()
            async with reading(broker, "t", instance="b", **static) as before:
                before.eager = True
                # The sticky assignor gives it all of t, the other one half.
                await until(lambda: bool(granted(before)) and len(granted(before) + granted(first)) == 6, "a share")
            async with reading(broker, "t", "u", instance="b", **static) as after:
                after.eager = True
                await until(lambda: len(granted(after)) == len(granted(first)) == 3, "half of everything")
                assert {topic for topic, _ in granted(after)} >= {"u"}
                assert len({*granted(after), *granted(first)}) == 6


# --- brokers come, go and change


async def test_leaders_that_move() -> None:
    async with serving(2, nodes=3) as broker, reading(broker) as pipe:
        for turn in range(6):
            for partition in range(2):
                broker.append("t", batches(turn * 10, 10), partition)
            if turn % 2:
                await pipe.got((turn + 1) * 200)
            broker.move_leader("t", turn % 2)
        await pipe.got(1200)
        assert_once(pipe, 1200)
        await pipe.drained()
        assert pipe.count("revoked") == 0


@pytest.mark.parametrize("hints", [False, True])
async def test_a_partition_without_a_leader_for_a_while(hints: bool) -> None:
    async with serving(nodes=2, leader_hints=hints) as broker, reading(broker) as pipe:
        broker.append("t", batches(0, 10))
        await pipe.got(100)
        broker.move_leader("t", node=-1)
        broker.append("t", batches(10, 10))
        await until(lambda: bool(pipe.source.partitions[0].error), "an error")
        broker.move_leader("t", node=1)
        await pipe.got(200)
        assert_once(pipe, 200)
        await until(lambda: not pipe.source.partitions[0].error, "no error")


async def test_a_broker_that_falls_silent_is_left() -> None:
    async with serving() as broker, reading(broker, request_timeout_s=1.0, connect_timeout_s=1.0) as pipe:
        broker.append("t", batches(0, 10))
        await pipe.got(100)
        before = broker.accepted
        broker.muted = True
        await until(lambda: broker.accepted > before, "another attempt", lambda: pipe.source.status())
        assert pipe.source.status()["reconnects"]["silent"]
        broker.muted = False
        broker.append("t", batches(10, 10))
        await pipe.got(200)
        assert_once(pipe, 200)
        await pipe.drained()


@pytest.mark.parametrize("lacks", ["room", "memory"])
async def test_what_was_voided_while_nothing_could_be_taken_comes_when_it_can(lacks: str) -> None:
    """A connection that was paused reads on, although none of its partitions are read by then."""
    async with serving() as broker, reading(broker) as pipe:
        await pipe.granted()
        pipe.room = lacks != "room"
        broker.append("t", batches(0, 20))
        await pipe.got(200)
        pipe.source.on_budget(Level.STOP if lacks == "memory" else Level.FREE)
        assert [one["paused"] for one in pipe.source.status()["connections"] if one["partitions"]] != [[]]
        pipe.drop_roll()
        pipe.source.void()
        pipe.room = True
        pipe.source.on_budget(Level.FREE)
        pipe.source.resume()
        await pipe.got(400)


async def test_throttling() -> None:
    async with serving() as broker, reading(broker) as pipe:
        broker.throttle(50, 5)
        broker.append("t", batches(0, 50))
        await pipe.got(500)
        assert_once(pipe, 500)
        assert broker.take_throttle() == 0


async def test_memory_and_room() -> None:
    async with serving() as broker, reading(broker) as pipe:
        await pipe.granted()
        pipe.source.on_budget(Level.STOP)
        broker.append("t", batches(0, 100))
        pipe.source.on_budget(Level.FREE)
        pipe.room = False
        await until(lambda: pipe.rows > 0, "a chunk")
        broker.append("t", batches(100, 100))
        pipe.room = True
        pipe.source.resume()
        await pipe.got(2000)
        assert_once(pipe, 2000)


async def test_where_the_time_went() -> None:
    async with serving() as broker, reading(broker) as pipe:
        broker.append("t", [batch(number, compression=Compression.LZ4) for number in range(200)])
        await pipe.got(2000)
        pipe.room = False
        broker.append("t", batches(200, 1))
        await pipe.got(2010)
        await until(lambda: "back_pressure" in pipe.source.stage_ns, "that we wait for room")
        pipe.source.resume()
        pipe.source.on_budget(Level.HOLD)
        await until(lambda: "permits" in pipe.source.stage_ns, "that we wait for memory")
        assert set(pipe.source.stage_ns) == {"receive", "scan", "decompress", "decode", "back_pressure", "permits"}
        assert min(pipe.source.stage_ns.values()) > 0


# --- topics


async def test_a_topic_that_is_not_there() -> None:
    async with serving() as broker:
        pipe = KafkaPipe(broker, "missing")
        with pytest.raises(SourceFailed, match="missing does not exist"):
            await pipe.start()
        assert "missing" not in broker.topics
        await pipe.close()


# --- where to begin


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 3),
        ("latest", 10),
        (datetime.fromtimestamp(1_700_000_005, UTC).isoformat(), 5),
        (datetime.fromtimestamp(1_750_000_000, UTC).isoformat(), 10),
    ],
)
async def test_start(start: str, first: int) -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        broker.trim("t", 30)
        async with reading(broker, start=start) as pipe:
            await pipe.granted()
            broker.append("t", batches(10, 10))
            await pipe.got((20 - first) * 10)
            assert {value.split(b":")[0] for _, _, value in pipe.values} == {b"%d" % n for n in range(first, 20)}
            assert_once(pipe, (20 - first) * 10)


async def test_the_offset_of_the_group() -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        broker.group("g").offsets["t", 0] = 73, -1, ""
        async with reading(broker) as pipe:
            await pipe.got(27)
            assert_once(pipe, 27)


@pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
async def test_a_dataset_behind_its_group_is_not_at_the_end(protocol: str) -> None:
    """A dataset restored from a backup: --until-end lands what it lacks, whatever the group has committed."""
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker) as first:
            await first.got(100)
            await first.drained()
            restored = first.coverage.copy()
            broker.append("t", batches(10, 10))
            await first.got(200)
            await first.drained()
        async with reading(broker, coverage=restored, protocol=protocol) as second:
            heads = await second.source.heads()
            await second.granted()
            assert list(await second.source.unfinished(heads, second.coverage)) == [0]
            await second.got(100)
            assert list(await second.source.unfinished(heads, second.coverage)) == [0]
            second.commit()
            assert list(await second.source.unfinished(heads, second.coverage)) == []
            assert list(await second.source.unfinished(heads, Coverage())) == []
