"""A replay of dead letters to a topic in memory that fails at any place: each letter is stored once, and is marked."""

import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire_daemon.cli.dead import replay as replaying
from fastwire_daemon.cli.dead.replay import PROPERTY, DeadLetterReplay, Replayed
from fastwire_daemon.dataset.deadletters.replay import Replay
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.systems.produced import Produced, ProduceError
from fastwire_daemon.systems.recall import RecordsGone
from fastwire_daemon.systems.writer import Put
from tests.crash.test_replay import FINDING, SENDING, dead_letters
from tests.support.store import LocalBucket

LOG = Log("kafka", "memory", "mended", "0")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Killed(BaseException):
    """The process ends here."""


class Chunk:
    """Records as the columns of a chunk."""

    rows = 1
    dead_letters = ()

    def __init__(self, puts: list[Put]) -> None:
        rows = [[{"key": name, "value": str(value).encode()} for name, value in put.properties] or None for put in puts]
        self._batch = pa.record_batch({"headers": pa.array(rows, HEADERS)})

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)

    def release(self) -> None:
        pass


class Topic:
    """A topic in memory: ``late`` are requests of former writers, which a fence drops."""

    topic = "mended"

    def __init__(self) -> None:
        self.stored: list[Put] = []
        self.begin = 0
        self.late: dict[str, list[Put]] = {}
        self.fenced: list[str] = []
        self.fails: Callable[[], bool] = lambda: False
        self.cut = 0  # of a failing flush, so many are stored, and so many more arrive late
        self.refused: Callable[[Put], bool] = lambda put: False

    @asynccontextmanager
    async def open_writer(self, name: str) -> AsyncIterator[Any]:
        writer = Writer(self, name)
        yield writer
        await writer.flush()  # leaving in order waits until all is confirmed

    def deliver(self) -> None:
        """Let the late requests arrive, as far as nobody has fenced their writer."""
        for name, puts in self.late.items():
            if name not in self.fenced:
                self.stored += puts
        self.late.clear()

    async def ends(self) -> dict[Log, Position]:
        return {LOG: Position(len(self.stored), -1)}

    async def behind(self, ends: Mapping[Log, Position]) -> AsyncGenerator[Any, None]:
        if ends[LOG].a < self.begin:
            raise RecordsGone("deleted by retention")
        for at in range(ends[LOG].a, len(self.stored), 4):
            yield Chunk(self.stored[at : at + 4])

    async def fence(self, sender: str) -> None:
        self.fenced.append(sender)


class Writer:
    """A writer of the topic, which stores what waits at the flush."""

    topic = "mended"

    def __init__(self, owner: Topic, name: str) -> None:
        self.produced = Produced()
        self._owner = owner
        self._name = name
        self._waiting: list[Put] = []
        self._lost = False

    async def write(self, put: Put) -> None:
        if self._owner.refused(put):
            raise ValueError("too large")
        self._waiting.append(put)

    async def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        owner = self._owner
        if self._lost:
            raise ProduceError("an orderly end waits for receipts that do not come")
        if waiting and owner.fails():
            self._lost = True
            owner.stored += waiting[: owner.cut]
            owner.late.setdefault(self._name, []).extend(waiting[owner.cut : 2 * owner.cut])
            raise ProduceError("the connection is lost")
        owner.stored += waiting
        self.produced.records += len(waiting)


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(replaying, "_GROUP_RECORDS", 15)
    monkeypatch.setattr(replaying, "RETRY_S", 0.001)
    return dead_letters(tmp_path / "orders")


async def replay(
    path: Path,
    topic: Topic,
    *,
    at: str = "",
    nth: int = 1,
    named: bool = True,
    url: str = "kafka://a",
    medium: Bucket | None = None,
    **options: Any,
) -> tuple[Replayed, list[str]]:
    """Run one replay, killed when it comes to the step ``at`` for the ``nth`` time."""
    counts, said, left = Replayed(), list[str](), [nth]

    def reached(step: str) -> None:
        left[0] -= step == at
        if at and left[0] == 0:
            raise Killed

    with Replay(path, medium, reached=reached) as source:
        recall: Any = topic if named else None
        one = DeadLetterReplay(source, url, "mended", topic.open_writer, recall, counts, tell=said.append)
        await one.run(options.pop("reason", None), **options)
    return counts, said


def assert_each_once(path: Path, topic: Topic, count: int = 40) -> None:
    topic.deliver()
    assert Counter(put.value for put in topic.stored) == Counter(b"v%d" % n for n in range(count))
    report = verify(path)
    assert (report.problems, report.replayed) == ([], count)


async def test_nothing_happens_twice(path: Path, topic: Topic) -> None:
    counts, _ = await replay(path, topic)
    assert (counts.written, counts.found, counts.entries) == (40, 0, 4)
    assert_each_once(path, topic)
    counts, _ = await replay(path, topic)
    assert counts.written == 0
    assert_each_once(path, topic)


@pytest.mark.parametrize("step", ["intent-recorded", "letter-written", "letters-confirmed", "letters-marked"])
async def test_what_a_killed_one_has_written_is_found(path: Path, topic: Topic, step: str) -> None:
    with pytest.raises(Killed):
        await replay(path, topic, at=step, nth=2)
    counts, _ = await replay(path, topic)
    assert counts.found == (15 if step == "letters-confirmed" else 0)
    assert_each_once(path, topic)


async def test_a_part_that_was_stored_is_not_sent_again(path: Path, topic: Topic, monkeypatch: Any) -> None:
    """Of a group of 15, 4 are stored and 4 arrive later; the writer of a killed command does not come back."""
    topic.fails, topic.cut = lambda: True, 4
    monkeypatch.setattr(replaying, "PATIENCE_S", 0.0)
    with pytest.raises(ProduceError):
        await replay(path, topic)
    monkeypatch.undo()
    topic.fails = lambda: False
    counts, _ = await replay(path, topic)
    assert (counts.found, counts.written) == (4, 36)
    assert_each_once(path, topic)


async def test_a_lost_connection_is_survived(path: Path, topic: Topic) -> None:
    chance = random.Random(3)
    topic.fails, topic.cut = lambda: chance.random() < 0.5, 3
    counts, said = await replay(path, topic)
    assert counts.written == 40 and said[0].startswith("the connection is lost; retrying after a look")
    assert_each_once(path, topic)


@pytest.mark.parametrize("seed", range(20))
async def test_kills_and_failures_at_random(path: Path, topic: Topic, seed: int) -> None:
    chance = random.Random(seed)
    topic.fails, topic.cut = lambda: chance.random() < 0.3, chance.randrange(1, 6)
    steps = [*SENDING, *FINDING]
    for _ in range(10):
        try:
            await replay(path, topic, at=chance.choice(steps), nth=chance.randrange(1, 10))
        except Killed:
            continue
        break
    await replay(path, topic)
    assert_each_once(path, topic)


async def test_two_at_once_never_have_the_same_letter(path: Path, topic: Topic) -> None:
    with Replay(path) as one, Replay(path) as other:
        group = [letter for letter in one.dead_letters() if "of the value" in letter.reason][:15]
        assert one.take(group, "kafka://a", "mended", {}) is not None
        assert other.take(group[10:], "kafka://a", "mended", {}) is None  # it has not looked at the log
        assert (len(other.free(group)[0]), other.free(group)[1]) == (0, 15)
        assert other.abandoned() == []  # the first one lives
        counts, _ = await replay(path, topic)
        assert (counts.written, counts.others) == (25, 15)
    with Replay(path) as one, Replay(path) as other:
        (left,) = one.abandoned()
        assert other.abandoned() == [left]
        assert sum(each.last - each.first + 1 for each in left.facts.dead_letters) == 15
        taken = other.take_over(left)
        assert taken is not None
        assert one.take_over(left) is None  # it was a little later
        other.close(taken, ())
        assert one.take_over(left) is None
        assert one.abandoned() == []


async def test_what_cannot_be_looked_at_is_not_written(path: Path, topic: Topic, monkeypatch: Any) -> None:
    async def ends() -> Any:
        raise FastwireError("not allowed to read")

    monkeypatch.setattr(topic, "ends", ends)
    with pytest.raises(FastwireError, match="not allowed to read"):
        await replay(path, topic)  # at once
    assert topic.stored == []


async def test_another_target_is_refused(path: Path, topic: Topic) -> None:
    with pytest.raises(Killed):
        await replay(path, topic, at="letters-confirmed")
    with pytest.raises(FastwireError, match="15 dead letters to mended at kafka://a: give that target"):
        await replay(path, topic, url="kafka://b")
    await replay(path, topic)
    assert_each_once(path, topic)


async def test_records_that_are_gone_are_refused(path: Path, topic: Topic) -> None:
    with pytest.raises(Killed):
        await replay(path, topic, at="letters-confirmed", nth=2)
    topic.begin = 16
    with pytest.raises(FastwireError, match=r"deleted by retention\. With --again"):
        await replay(path, topic)
    counts, said = await replay(path, topic, again=True)
    assert counts.written == 25 and said == ["15 dead letters of a command that has ended may be written again"]
    assert Counter(put.value for put in topic.stored).total() == 55


async def test_a_system_without_properties_is_at_least_once(path: Path, topic: Topic) -> None:
    with pytest.raises(Killed):
        await replay(path, topic, named=False, at="letters-confirmed", nth=2)
    topic.refused = lambda put: bool(put.properties)
    counts, said = await replay(path, topic, named=False)
    assert counts.written == 25 and said == ["15 dead letters of a command that has ended may be written again"]
    assert verify(path).replayed == 40


async def test_a_letter_that_cannot_be_stored_stops_no_other(path: Path, topic: Topic) -> None:
    topic.refused = lambda put: (
        (put.value == b"v7" and bool(put.properties)) or any("," in str(value) for _, value in put.properties)
    )
    counts, said = await replay(path, topic)
    assert (counts.written, counts.unfit, len(said)) == (39, 1, 1)
    assert all(put.properties[0][0] == PROPERTY for put in topic.stored)
    topic.refused = lambda put: False
    assert (await replay(path, topic))[0].written == 1
    assert_each_once(path, topic)


async def test_in_a_bucket(tmp_path: Path, path: Path, topic: Topic) -> None:
    """A command whose lease may still be renewed keeps its letters; one whose lease is over does not."""
    bucket = LocalBucket(tmp_path / "bucket", lease_s=1.0)
    dead_letters(path, medium=bucket)
    with Replay("", bucket) as first:
        group = [letter for letter in first.dead_letters() if "of the value" in letter.reason][:15]
        assert first.take(group, "kafka://a", "mended", {}) is not None
        counts, _ = await replay(path, topic, medium=bucket)
        assert (counts.written, counts.others) == (25, 15)
    counts, said = await replay(path, topic, medium=bucket)
    assert counts.written == 15 and len(said) == 1
    assert Counter(put.value for put in topic.stored) == Counter(b"v%d" % n for n in range(40))
    assert verify("", medium=bucket).problems == []
