"""The conformance tests of a system find what is wrong with it: a system, weakened in one slot."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.position import Position, Positions
from fastwire_daemon.systems.base import Described
from fastwire_daemon.systems.kafka.source import KafkaSource
from fastwire_daemon.systems.pulsar.source import PulsarSource
from fastwire_daemon.systems.source import Assignment
from fastwire_daemon.testing.system import SystemConformance
from fastwire_toy.devbroker import ToyBroker
from fastwire_toy.position import POSITIONS
from fastwire_toy.scan import Slot
from fastwire_toy.source import Partition, ToySource
from fastwire_toy.system import ToySystem, ToyWriter

Patch = pytest.MonkeyPatch


class Toy(SystemConformance):
    system = "toy"


class Pulsar(SystemConformance):
    system = "pulsar"


class Kafka(SystemConformance):
    system = "kafka"
    source: ClassVar = {"metadata_max_age": "200ms"}


# --- weak sources


class SkipsRecordsAfterALoss(ToySource):
    lost = False

    def _is_connected(self, partition: Partition, connected: bool) -> None:
        super()._is_connected(partition, connected)
        self.lost = self.lost or not connected

    def _took(self, chunk: Chunk) -> None:
        if self.lost:
            self.lost = False
            chunk.release()
        else:
            super()._took(chunk)


class Moves(ToySource):
    """Reads from another place than granted."""

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        assignments = list(assignments)
        super().grant(assignments, coverage)
        for each in assignments:
            slot = self.partitions[each.index].slot
            assert slot is not None
            slot.offset = self.moved(slot.offset, bool(coverage.intervals(each.log)))

    def moved(self, offset: int, again: bool) -> int:
        raise NotImplementedError


class SkipsARecordAtARestart(Moves):
    def moved(self, offset: int, again: bool) -> int:
        return offset + again


class ReadsAgainFromTheStart(Moves):
    def moved(self, offset: int, again: bool) -> int:
        return 0


class AsksForWhatCannotBe(ToySource):
    async def _read(self, partition: Partition, slot: Slot) -> None:
        await super()._read(partition, Slot(slot.index, slot.partition, -1))


class IgnoresRoomAndMemory(ToySource):
    def _steer(self) -> None:
        pass


class IgnoresMemory(ToySource):
    def on_budget(self, level: object) -> None:
        pass


class IgnoresAVoidRoll(ToySource):
    def void(self) -> None:
        pass


class LatestIsEarliest(ToySource):
    def _beginning(self, assignment: Assignment) -> Position:
        return Position(0, 0)


class ForgetsItsOtherPartitions(ToySource):
    def _is_connected(self, partition: Partition, connected: bool) -> None:
        super()._is_connected(partition, connected)
        if not connected and partition is not self.partitions[0]:
            self._end(partition)


class EndsAtOnce(ToySource):
    async def heads(self) -> Mapping[int, Position]:
        for partition in self.partitions:
            self._end(partition)
        return {}


class AcksOnReceipt(PulsarSource):
    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        self.received = coverage.copy()
        super().grant(assignments, coverage)

    def on_chunk(self, chunk: Chunk) -> None:
        spans = chunk.spans()
        super().on_chunk(chunk)
        for span in spans:
            self.received.add(span)
        self.landed(self.received)


class NeverConfirms(KafkaSource):
    def landed(self, coverage: Coverage, indexes: object = None) -> None:
        pass


class StopsAtADeletedTopic(KafkaSource):
    def follow_topics(self) -> None:
        pass


TOY: list[tuple[type[ToySource], str, str]] = [
    (SkipsRecordsAfterALoss, "test_lost_connections_cost_no_record", r"never happened: \d+ records"),
    (SkipsARecordAtARestart, "test_a_pipeline_goes_on_where_it_was", "a span starts at"),
    (ReadsAgainFromTheStart, "test_a_pipeline_goes_on_where_it_was", "which has landed"),
    (ReadsAgainFromTheStart, "test_start_at_a_position", "before the known start"),
    (AsksForWhatCannotBe, "test_start_earliest", "recorded a violation: .*a fetch at -1"),
    (IgnoresRoomAndMemory, "test_a_sink_that_waits_stops_the_reading", "were received without room"),
    (IgnoresRoomAndMemory, "test_memory_stays_below_the_budget", "bytes were used of"),
    (IgnoresMemory, "test_memory_stays_below_the_budget", "bytes were used of"),
    (IgnoresAVoidRoll, "test_a_void_roll_is_read_again", "never happened: the same records"),
    (LatestIsEarliest, "test_start_latest", "assert"),
    (ForgetsItsOtherPartitions, "test_lost_connections_cost_no_record", "never happened"),
    (EndsAtOnce, "test_the_end_of_the_topic_ends_a_run", "assert"),
]
GROUPS: list[tuple[SystemConformance, type, str, str]] = [
    (Pulsar(), AcksOnReceipt, "test_nothing_is_confirmed_before_the_commit", r"\(40, (0|20)\) != \(40, 40\)"),
    (Kafka(), NeverConfirms, "test_a_drain_commits_and_confirms_what_was_taken", "never happened: a backlog of"),
    (Kafka(), StopsAtADeletedTopic, "test_a_topic_that_is_created_again", "never happened: the records of the second"),
]


@pytest.mark.parametrize(
    ("source", "test", "message"), TOY, ids=[f"{source.__name__}-{test}" for source, test, _ in TOY]
)
def test_a_weak_source_is_found(source: type[ToySource], test: str, message: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("fastwire_toy.system.ToySource", source)
    fails(Toy(), test, message, monkeypatch)


@pytest.mark.parametrize(
    ("suite", "source", "test", "message"), GROUPS, ids=[f"{source.__name__}-{test}" for _, source, test, _ in GROUPS]
)
def test_a_weak_use_of_groups_is_found(
    suite: SystemConformance, source: type, test: str, message: str, monkeypatch: Patch
) -> None:
    """The toy system has no groups, and its topics are not created again."""
    module = import_module(f"fastwire_daemon.systems.{suite.system}.source")
    if suite.system == "kafka":
        monkeypatch.setattr(module, "DRIVER", module.DRIVER._replace(source=source))
    else:
        monkeypatch.setattr(module, source.__bases__[0].__name__, source)
    fails(suite, test, message, monkeypatch)


def fails(suite: SystemConformance, test: str, message: str, monkeypatch: Patch) -> None:
    """Run a test of a weakened system, which must fail with this message."""
    monkeypatch.setattr("fastwire_daemon.testing.system.scene.PATIENCE_S", 5.0)
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception), match=message):
        with suite.serving() as scene:
            getattr(suite, test)(scene)


# --- weak brokers, commands and text forms


async def _describes_everything(self: ToySystem, connection: Any, topics: Any) -> Described:
    return Described([(name, 1) for name in topics.names], [])


def _keeps_its_end(self: ToyBroker, name: str) -> list[Position]:
    return [Position(0, 0) for _ in self.topics[name]]


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
    fails(Toy(), test, message, monkeypatch)


def test_null_values_that_become_empty_are_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fastwire_toy.system._text", lambda data: base64.b64encode(data or b"").decode())
    fails(Toy(), "test_null_values_are_read_again", "assert", monkeypatch)


def test_headers_that_are_dropped_are_found(monkeypatch: Patch) -> None:
    class Lacking(Toy):
        lacks = {"headers": "a record is a key and a value"}  # noqa: RUF012

    write = ToyWriter.write
    monkeypatch.setattr(ToyWriter, "write", lambda self, put: write(self, put._replace(properties=())))
    fails(Lacking(), "test_a_record_with_more_than_the_system_has_is_refused", "DID NOT RAISE", monkeypatch)


@pytest.fixture
def unshrunk() -> Iterator[None]:
    """No search for the smallest example, which takes ten seconds."""
    settings.register_profile("unshrunk", settings.default, phases=[Phase.generate])
    settings.load_profile("unshrunk")
    yield
    settings.load_profile("fastwire")


@pytest.mark.usefixtures("unshrunk")
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
