"""The conformance tests of a system find what is wrong with it: the toy system, weakened in one place."""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from fastwire.columns.chunk import Chunk
from fastwire.position import Coverage, Position, Positions
from fastwire_daemon.systems.base import Described
from fastwire_daemon.systems.source import Assignment
from fastwire_daemon.testing.system import SystemConformance
from fastwire_toy.devbroker import ToyBroker
from fastwire_toy.link import Link
from fastwire_toy.position import POSITIONS
from fastwire_toy.source import Partition, ToySource
from fastwire_toy.system import ToySystem

Patch = pytest.MonkeyPatch


class Toy(SystemConformance):
    system = "toy"


# --- weak sources


class AcksOnReceipt(ToySource):
    def _took(self, chunk: Chunk) -> None:
        super()._took(chunk)
        for partition in self.partitions:
            if partition.place is not None and partition.place.offset > partition.sent:
                self.commit(partition, partition.place.offset)


class Moves(ToySource):
    """Reads from another place than granted."""

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        assignments = list(assignments)
        super().grant(assignments, coverage)
        for each in assignments:
            place = self.partitions[each.index].place
            if place is not None:
                place.offset = self.moved(place.offset, bool(coverage.intervals(each.log)))

    def moved(self, offset: int, again: bool) -> int:
        raise NotImplementedError


class SkipsARecordAfterALoss(Moves):
    def moved(self, offset: int, again: bool) -> int:
        return offset + again


class ReadsAgainFromTheStart(Moves):
    def moved(self, offset: int, again: bool) -> int:
        return 0


class IgnoresRoomAndMemory(ToySource):
    def _steer(self) -> None:
        pass


class IgnoresMemory(ToySource):
    def on_budget(self, level: object) -> None:
        pass


class IgnoresAVoidRoll(ToySource):
    def void(self) -> None:
        pass


class NeverConfirms(ToySource):
    def commit(self, partition: Partition, offset: int) -> None:
        pass


class ConfirmsTooMuch(ToySource):
    def commit(self, partition: Partition, offset: int) -> None:
        super().commit(partition, offset + 1)


class LatestIsEarliest(ToySource):
    def _beginning(self, partition: Partition, assignment: Assignment) -> Position:
        return Position(0, 0)


class ForgetsItsOtherPartitions(ToySource):
    def revoke(self, reason: str) -> None:
        super().revoke(reason)
        self.partitions[-1].stopped = True


class StopsAtADeletedTopic(ToySource):
    async def _replace(self, link: Link, partition: Partition) -> None:
        partition.assignment = partition.place = None


class EndsAtOnce(ToySource):
    async def heads(self) -> Mapping[int, Position]:
        for partition in self.partitions:
            partition.stopped = True
            partition.assignment = partition.place = None
        return {}


SOURCES: list[tuple[type[ToySource], str, str]] = [
    (AcksOnReceipt, "test_nothing_is_confirmed_before_the_commit", r"\(40, 0\) != \(40, 40\)"),
    (SkipsARecordAfterALoss, "test_lost_connections_cost_no_record", "a span starts at"),
    (SkipsARecordAfterALoss, "test_a_pipeline_goes_on_where_it_was", "a span starts at"),
    (ReadsAgainFromTheStart, "test_a_pipeline_goes_on_where_it_was", "which has landed"),
    (ReadsAgainFromTheStart, "test_start_at_a_position", "before the known start"),
    (IgnoresRoomAndMemory, "test_a_sink_that_waits_stops_the_reading", "were received without room"),
    (IgnoresRoomAndMemory, "test_memory_stays_below_the_budget", "bytes were used of"),
    (IgnoresMemory, "test_memory_stays_below_the_budget", "bytes were used of"),
    (IgnoresAVoidRoll, "test_a_void_roll_is_read_again", "never happened: the same records"),
    (NeverConfirms, "test_a_drain_commits_and_confirms_what_was_taken", "never happened: a backlog of"),
    (ConfirmsTooMuch, "test_the_end_of_the_topic_ends_a_run", "recorded a violation: .*a commit of 11"),
    (LatestIsEarliest, "test_start_latest", "assert"),
    (ForgetsItsOtherPartitions, "test_lost_connections_cost_no_record", "never happened"),
    (StopsAtADeletedTopic, "test_a_topic_that_is_created_again", "never happened: the records of the second"),
    (EndsAtOnce, "test_the_end_of_the_topic_ends_a_run", "assert"),
]


@pytest.mark.parametrize(
    ("source", "test", "message"), SOURCES, ids=[f"{source.__name__}-{test}" for source, test, _ in SOURCES]
)
def test_a_weak_source_is_found(source: type[ToySource], test: str, message: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("fastwire_toy.system.ToySource", source)
    fails(test, message, monkeypatch)


def fails(test: str, message: str, monkeypatch: Patch) -> None:
    """Run a test of the toy system, which must fail with this message."""
    monkeypatch.setattr("fastwire_daemon.testing.system.scene.PATIENCE_S", 5.0)
    toy = Toy()
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception), match=message):
        with toy.serving() as scene:
            getattr(toy, test)(scene)


# --- weak brokers, commands and text forms


async def _describes_everything(self: ToySystem, connection: Any, topics: Any) -> Described:
    return Described([(name, 1) for name in topics.names], [])


def _keeps_its_end(self: ToyBroker, name: str) -> list[Position]:
    return [Position(0, 0) for _ in self.topics[name].partitions]


PATCHES: list[tuple[object, str, Callable[..., Any], str, str]] = [
    (ToySystem, "describe", _describes_everything, "test_an_unknown_topic_is_refused", "DID NOT RAISE"),
    (ToyBroker, "end_positions", _keeps_its_end, "test_records_move_the_end_of_their_partition", "assert"),
    (ToyBroker, "end_positions", _keeps_its_end, "test_positions_of_the_broker_can_be_stored", "impossible"),
]


@pytest.mark.parametrize(("of", "name", "weak", "test", "message"), PATCHES, ids=[each[3] for each in PATCHES])
def test_a_weak_part_is_found(
    of: object, name: str, weak: Callable[..., Any], test: str, message: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(of, name, weak)
    fails(test, message, monkeypatch)


def test_null_values_that_become_empty_are_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fastwire_toy.system._text", lambda data: base64.b64encode(data or b"").decode())
    fails("test_null_values_are_read_again", "assert", monkeypatch)


@pytest.mark.parametrize(
    ("name", "weak", "test"),
    [
        ("format", lambda self, position: str(position.a % 1000), "test_a_position_has_one_text_form"),
        ("precedes", lambda self, one, other: one.a <= other.a, "test_positions_are_ordered"),
    ],
)
def test_weak_positions_are_found(name: str, weak: Callable[..., Any], test: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(type(POSITIONS), name, weak)
    with pytest.raises((AssertionError, ValueError)):
        getattr(Toy(), test)()


def test_a_text_that_is_refused_without_a_message_is_found(monkeypatch: Patch) -> None:
    def parse(self: Positions, text: str) -> Position:
        raise ValueError

    monkeypatch.setattr(type(POSITIONS), "parse", parse)
    with pytest.raises(AssertionError):
        Toy().test_wrong_texts_are_refused_with_a_message()


def test_what_a_system_lacks_is_skipped_with_the_reason() -> None:
    class Lacking(Toy):
        lacks = {"groups": "each consumer keeps its own progress"}  # noqa: RUF012

    toy = Lacking()
    with toy.serving() as scene, pytest.raises(pytest.skip.Exception, match="each consumer keeps its own progress"):
        toy.test_nothing_is_confirmed_before_the_commit(scene)
