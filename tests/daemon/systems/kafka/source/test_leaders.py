"""Leaders and coordinators that are missing or away: a log waits for its own leader, and for nothing else."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import decode_response, encode_response
from fastwire.kafka.protocol.connection import Key
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, Request
from fastwire_daemon.pipeline.failure import PipelineFailed
from fastwire_daemon.pipeline.pipeline import Pipeline
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.budget import Budget, Level
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.systems.kafka.link import Link
from fastwire_daemon.systems.kafka.source import DRIVER
from fastwire_daemon.systems.kafka.source.kafkasource import KafkaSource
from fastwire_daemon.systems.source import LogStopped
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.pipeline_bed import NotingSink
from tests.support.source_pipe import until

PROTOCOLS = pytest.mark.parametrize("protocol", ["none", "classic", "consumer"])
WAITS = "partitions cannot be read, retrying"
GIVEN_UP = r"t partition 1 \(incarnation .*\): could not be read for 0 s: t partition 1: LEADER_NOT_AVAILABLE"
NO_LEADER = "t partition 1: LEADER_NOT_AVAILABLE (no broker leads it now)"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No partition waits for long."""
    monkeypatch.setattr("fastwire_daemon.systems.reading.patience.LOG_LIMIT_S", 0.5)
    monkeypatch.setattr("fastwire_daemon.systems.reading.atleaders.TELL_S", 0.2)


@contextlib.contextmanager
def tampering(
    broker: KafkaDevBroker, change: Callable[[Request, dict[str, Any]], dict[str, Any] | None]
) -> Iterator[None]:
    """Answers as ``change`` makes them of their bodies; None leaves one as it is."""

    def tamper(request: Request, frame: bytes) -> bytes:
        body = change(request, decode_response(request.api.key, request.version, frame[4:]))
        return (
            frame if body is None else encode_response(request.api.key, request.version, request.correlation_id, body)
        )

    broker.tamper = tamper
    yield
    broker.tamper = None


def fill(broker: KafkaDevBroker, first: int, partitions: int = 3) -> None:
    for partition in range(partitions):
        broker.append("t", batches(first, 10), partition)


# --- what the coordinator says


async def test_an_assignment_whose_answer_was_lost_is_asked_for_again() -> None:
    async with serving(2) as broker, reading(broker, protocol="consumer") as one:
        await one.granted()
        lost = 0

        def lose(request: Request, body: dict[str, Any]) -> None:
            nonlocal lost
            if lost or request.api.key != Key.CONSUMER_GROUP_HEARTBEAT or request.body["member_epoch"] != 2:
                return
            if body["assignment"] is not None:
                lost += 1
                broker.cut_after(0)

        with tampering(broker, lose):
            async with reading(broker, protocol="consumer") as two:
                await until(lambda: lost == 1, "an assignment that gets lost")
                await until(lambda: sum(each.granted for each in two.source.partitions) == 1, "one of them")


async def test_a_member_leaves_while_the_answer_that_names_it_is_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator waits with the next rebalance for a member that it has named and that does not join."""
    named: list[str] = []
    left: list[str] = []
    arrives = asyncio.Event()

    async def ask(link: Link, key: int, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = await real(link, key, body, **more)
        if key == Key.JOIN_GROUP:
            named.append(answer["member_id"])
            await arrives.wait()
        elif key == Key.LEAVE_GROUP:
            left.extend(one["member_id"] for one in body["members"])
        return answer

    real = Link.ask
    monkeypatch.setattr(Link, "ask", ask)
    async with serving(1) as broker, reading(broker, protocol="classic") as pipe:
        await until(lambda: bool(named), "a member with a name")
        closing = asyncio.ensure_future(pipe.source.close(30))
        await asyncio.sleep(0)
        arrives.set()
        await closing
    assert left == named[:1]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_coordinator_moves_while_partitions_are_given_away(protocol: str) -> None:
    async with serving(2) as broker, reading(broker, protocol=protocol) as one:
        refused = 0

        def refuse(request: Request, body: dict[str, Any]) -> dict[str, Any] | None:
            nonlocal refused
            if request.api.key != Key.OFFSET_COMMIT or refused:
                return None
            refused += 1
            for topic in body["topics"]:
                for partition in topic["partitions"]:
                    partition["error_code"] = Code.NOT_COORDINATOR
            return body

        fill(broker, 0, 2)
        await one.got(200)
        with tampering(broker, refuse):
            async with reading(broker, protocol=protocol, coverage=one.coverage) as two:
                await until(lambda: sum(each.granted for each in one.source.partitions) == 1, "one of them")
                one.commit()
                await until(lambda: refused == 1, "a commit that is refused")
                two.eager = one.eager = True
                await until(lambda: sum(each.granted for each in two.source.partitions) == 1, "the other one")


# --- a partition without a leader


@PROTOCOLS
@pytest.mark.parametrize("known", [False, True])
async def test_a_partition_without_a_leader_at_the_start_waits_alone(protocol: str, known: bool) -> None:
    coverage = Coverage()
    async with serving(3, nodes=2) as broker:
        if known:
            async with reading(broker, protocol=protocol) as before:
                fill(broker, 0)
                await before.got(300)
                await before.drained()
                coverage = before.coverage
        broker.move_leader("t", 1, node=-1)
        fill(broker, 10)
        async with reading(broker, protocol=protocol, coverage=coverage) as pipe:
            pipe.eager = True
            await pipe.got(200)
            assert {partition for _, partition, _ in pipe.values} == {"0", "2"}
            await until(lambda: pipe.source.status()["errors"] == {str(pipe.log(1)): NO_LEADER}, "an error")
            assert pipe.source.waiting() == {1: NO_LEADER}
            pipe.commit()
            broker.move_leader("t", 1, node=0)
            await pipe.got(300)
            assert_once(pipe, 300)
            await until(lambda: not pipe.source.waiting() and not pipe.source.status()["errors"], "no error")
            await pipe.drained()


async def test_partitions_that_are_new_begin_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed in between would take partition 2 for one that was added later, and read it all."""
    async with serving(3, nodes=2) as broker:
        fill(broker, 0)
        broker.move_leader("t", 2, node=-1)
        async with reading(broker, start="latest") as pipe:
            await until(lambda: bool(pipe.source.waiting()), "a partition that waits")
            assert pipe.assigned == []
            broker.move_leader("t", 2, node=0)
            await pipe.granted()
            assert pipe.count("assigned") == 1
        monkeypatch.setattr("fastwire_daemon.systems.reading.offsetlookup.TOGETHER_S", 0.1)
        broker.move_leader("t", 2, node=-1)
        async with reading(broker, start="latest") as pipe:
            await until(lambda: len(pipe.assigned) == 2, "the others")


async def test_a_partition_that_waits_is_told_once_and_when_it_goes_on(
    hurried: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "fastwire.source"):
        async with serving(3, nodes=2) as broker:
            broker.move_leader("t", 1, node=-1)
            async with reading(broker) as pipe:
                await until(lambda: WAITS in caplog.text, "a line")
                refreshed = broker.requests["Metadata"]
                await until(lambda: broker.requests["Metadata"] >= refreshed + 3, "more attempts")
                broker.move_leader("t", 1, node=0)
                await pipe.granted()
                await until(lambda: "no partition waits any more" in caplog.text, "another line")
    (told,) = (one for one in caplog.records if one.message.startswith(WAITS))
    fields: dict[str, Any] = vars(told)["fields"]
    assert (fields["partitions"], fields["error"]) == (1, NO_LEADER)
    assert fields["first"].startswith("t partition 1 ")


async def test_until_end_lands_the_others_and_names_the_one(hurried: None) -> None:
    async with serving(3, nodes=2) as broker:
        fill(broker, 0)
        broker.move_leader("t", 1, node=-1)
        sink = NotingSink([])
        pool = KafkaPipe(broker).pool
        settings = KafkaPipe(broker).source.settings
        pipeline = Pipeline(
            "p",
            lambda events, cluster: KafkaSource(settings, events, pool),
            sink,
            Budget(pool),
            DaemonMetrics("0").pipeline("p"),
            RollPolicy(),
            until_end=True,
        )
        with pytest.raises(PipelineFailed, match=GIVEN_UP):
            await pipeline.run()
        assert sink.rows == 200


@pytest.mark.parametrize("to_end", [False, True])
async def test_tail_says_which_partition_it_waits_for(
    hurried: None, caplog: pytest.LogCaptureFixture, to_end: bool
) -> None:
    async with serving(3, nodes=2) as broker:
        fill(broker, 0)
        broker.move_leader("t", 1, node=-1)
        pipe = KafkaPipe(broker, protocol="none")
        reader = DRIVER.reader(replace(pipe.source.settings, group=""), pipe.pool)
        rows, told = 0, ""
        try:
            await reader.open()
            if to_end:
                try:
                    async for chunk in reader.up_to_now():
                        rows += chunk.rows
                except LogStopped as exc:
                    told = str(exc)
                assert re.match(GIVEN_UP, told)
            else:
                async for chunk in reader:
                    rows += chunk.rows
                    if rows == 200:
                        break
                await until(lambda: WAITS in caplog.text, "a line")
                broker.move_leader("t", 1, node=0)
                async for chunk in reader:
                    rows += chunk.rows
                    if rows == 300:
                        break
        finally:
            await reader.close()
        assert rows == (200 if to_end else 300)


# --- a coordinator that does not answer


def no_coordinator(request: Request, body: dict[str, Any]) -> dict[str, Any] | None:
    if request.api.key != Key.FIND_COORDINATOR:
        return None
    nobody = {"node_id": -1, "host": "", "port": -1, "error_code": Code.COORDINATOR_NOT_AVAILABLE}
    return body | nobody | {"coordinators": [one | nobody for one in body.get("coordinators", [])]}


async def test_a_known_dataset_does_not_wait_for_the_coordinator() -> None:
    async with serving(3) as broker:
        async with reading(broker) as before:
            fill(broker, 0)
            await before.got(300)
            before.commit()
        with tampering(broker, no_coordinator):
            fill(broker, 10)
            async with reading(broker, coverage=before.coverage) as pipe:
                await pipe.got(300)
                assert_once(pipe, 300)
                broker.tamper = None
                await pipe.drained()


async def test_offsets_of_the_group_that_are_ahead_stay_until_more_has_landed() -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker) as before:
            await before.got(100)
            before.commit()
            known = before.coverage.copy()
            broker.append("t", batches(10, 10))
            await before.got(200)
            await before.drained()
        broker.requests.clear()
        async with reading(broker, coverage=known) as pipe:
            await pipe.got(100)
            await until(lambda: broker.requests["OffsetFetch"] > 0, "a question")
            assert broker.offsets("g") == {("t", 0): 200}
            await pipe.drained()


async def test_a_new_dataset_without_a_group_waits_for_its_offsets_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 10))
            with tampering(broker, no_coordinator):
                async with reading(broker) as pipe:
                    await until(lambda: "COORDINATOR_NOT_AVAILABLE" in pipe.source.partitions[0].error, "an error")
                    assert pipe.assigned == []
                    monkeypatch.setattr("fastwire_daemon.systems.kafka.source.group.COORDINATOR_S", 0.0)
                    await pipe.got(100)
                    assert_once(pipe, 100)
    assert sum("offsets cannot be had" in record.message for record in caplog.records) == 1


# --- the leader of a group


@pytest.mark.parametrize("fault", ["cut", "topic"])
async def test_the_leader_of_a_group_shares_out_although_metadata_failed(fault: str) -> None:
    """Once the group has answered JoinGroup nothing else makes its leader share the partitions out."""
    armed = 0

    def tamper(request: Request, frame: bytes) -> bytes:
        nonlocal armed
        if request.api.key == Key.JOIN_GROUP and not armed:
            armed = 1
        elif request.api.key == Key.METADATA and armed in (1, 2):
            armed += 1
            if fault == "cut":
                return frame[:4] + b"\xff" * (len(frame) - 4)  # an answer to what nobody asked
            body = decode_response(request.api.key, request.version, frame[4:])
            body["topics"] = [
                one | {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION, "partitions": []} for one in body["topics"]
            ]
            return encode_response(request.api.key, request.version, request.correlation_id, body)
        return frame

    async with serving(2) as broker:
        fill(broker, 0, 2)
        # The only question for metadata behind the join is the leader's own.
        async with reading(broker, protocol="classic", metadata_max_age_s=1000.0, started=False) as pipe:
            broker.tamper = tamper
            await pipe.start()
            await pipe.got(200)
            assert_once(pipe, 200)
            assert armed == 3


# --- offsets of the group that are not in the log


@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_an_offset_of_the_group_outside_of_the_log_leaves_it_to_start(
    where: str, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 20))
            async with reading(broker) as before:
                await before.got(200)
                await before.drained()
            if where == "before":
                broker.append("t", batches(20, 20))
                broker.trim("t", 300)
            else:
                broker.truncate("t", 100)
            async with reading(broker, start=start) as pipe:
                await pipe.granted()
                broker.append("t", batches(40, 1))
                await pipe.got(10 if start == "latest" else 110)
                assert_once(pipe, 10 if start == "latest" else 110)
                assert pipe.count("stopped") == 0
                assert [first.progress for first in pipe.firsts] == [False]
    (told,) = (one for one in caplog.records if "lies outside of the log" in one.message)
    assert vars(told)["fields"]["offset"] == 200


@pytest.mark.parametrize("protocol", ["none", "classic"])
@pytest.mark.parametrize("back", [True, False])
async def test_an_offset_of_the_group_that_was_set_back_is_told(
    protocol: str, back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 10))
            async with reading(broker, protocol=protocol) as before:
                await before.got(100)
                await before.drained()
            if back:
                place, (_, epoch, metadata) = next(iter(broker.group("g").offsets.items()))
                broker.group("g").offsets[place] = (20, epoch, metadata)
            async with reading(broker, protocol=protocol, coverage=before.coverage) as pipe:
                await pipe.granted()
                broker.append("t", batches(10, 1))
                await pipe.got(10)
                assert_once(pipe, 10)
                await pipe.drained()
    told = [vars(one)["fields"] for one in caplog.records if "was behind what has landed" in one.message]
    assert [(one["committed"], one["landed"]) for one in told] == [(20, 100)] * back


@pytest.mark.parametrize("protocol", ["none", "classic"])
@pytest.mark.parametrize("running", [True, False])
async def test_a_declared_gap_is_no_offset_that_was_set_back(
    protocol: str, running: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 10))
            async with reading(broker, protocol=protocol) as before:
                await before.got(100)
                await before.drained()
                if running:
                    before.source.on_budget(Level.STOP)
                    broker.append("t", batches(10, 10))
                    broker.trim("t", 150)
                    before.source.on_budget(Level.FREE)
                    await before.got(150)
                    await before.drained()
            if not running:
                broker.append("t", batches(10, 10))
                broker.trim("t", 150)
            coverage = before.coverage
            async with reading(broker, protocol=protocol, coverage=coverage) as pipe:
                await pipe.granted()
                broker.append("t", batches(20, 1))
                await pipe.got(10 if running else 60)
                await pipe.drained()
            gaps = [first.span.gap for first in [*before.firsts, *pipe.firsts] if first.span.gap is not None]
            assert [gap.to.a for gap in gaps] == [150]
    assert not [one for one in caplog.records if "was behind what has landed" in one.message]


@pytest.mark.parametrize("protocol", ["none", "classic"])
@pytest.mark.parametrize("deleted", [True, False])
async def test_a_crash_behind_the_commit_of_a_gap_is_no_offset_that_was_set_back(
    protocol: str, deleted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The gap is in the dataset, and the group's offset is still the one before it."""
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with serving() as broker:
            broker.append("t", batches(0, 15))
            async with reading(broker, protocol=protocol) as before:
                await before.got(150)
                await before.drained()
            place, (_, epoch, metadata) = next(iter(broker.group("g").offsets.items()))
            broker.group("g").offsets[place] = (100, epoch, metadata)
            if deleted:
                broker.trim("t", 150)
            async with reading(broker, protocol=protocol, coverage=before.coverage) as pipe:
                await pipe.granted()
                broker.append("t", batches(15, 1))
                await pipe.got(10)
                await pipe.drained()
    told = [vars(one)["fields"]["committed"] for one in caplog.records if "was behind what has landed" in one.message]
    assert told == ([] if deleted else [100])


async def test_an_offset_that_others_have_just_committed_is_no_offset_outside() -> None:
    async with serving() as broker:
        broker.append("t", batches(0, 10))
        async with reading(broker) as before:
            await before.got(100)
            await before.drained()
        async with reading(broker, started=False) as pipe:
            pipe.auto = False
            await pipe.start()
            await until(lambda: bool(pipe.assigned), "an assignment")
            pipe.source.partitions[0].end = 50  # as it was when it was asked for
            await pipe.take(pipe.assigned)
            broker.append("t", batches(10, 1))
            await pipe.got(10)
            assert [first.span.start.a for first in pipe.firsts] == [100]


# --- connections


async def test_a_connection_that_is_lost_while_its_partition_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch is asked for on one connection, and records come on another, which may have gone by then."""
    async with serving(nodes=2) as broker, reading(broker) as pipe:
        broker.append("t", batches(0, 10))
        await pipe.got(100)
        asked = asyncio.Event()
        parting = pipe.source._first_positions.parting

        async def slow(*args: Any) -> Any:
            found = await parting(*args)
            for (purpose, _, _), link in tuple(pipe.source.cluster.links.items()):
                if purpose == "fetch" and not asked.is_set():
                    link.abort("cut by the test")
            asked.set()
            await asyncio.sleep(0)
            return found

        monkeypatch.setattr(pipe.source._first_positions, "parting", slow)
        broker.move_leader("t", 0, node=1)
        broker.append("t", batches(10, 10))
        await pipe.got(200)
        assert_once(pipe, 200)
        assert asked.is_set()
