"""A pipeline in miniature: it reads, cuts what has landed or is staged, commits, acks; and starts over when told to."""

from collections.abc import Callable, Sequence
from typing import BinaryIO

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.erasure.condition import Condition, parse_condition
from fastwire_daemon.dataset.erasure.erasure import erase
from fastwire_daemon.dataset.erasure.rewrite import Found, Rewriter
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.level import level_directory
from fastwire_daemon.dataset.staging import StagedFile
from fastwire_daemon.dataset.storage.folder import FolderStorage
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import (
    DatasetDamagedError,
    DatasetError,
    DatasetMismatchError,
    FolderRefusedError,
    SinkFailedError,
    Superseded,
)

from .broker import Assigned, Broker, Row
from .store import SimBucket
from .world import Process, SimDisk

ROOT = "/data/set"
CHECKPOINT_EVERY = 2
TOPIC = "orders"
LEDGER = 1
ERASED_ROW = (0, 1)


class Writer(DatasetWriter):
    """The real one, with checkpoints often enough to matter in a short run."""

    checkpoint_every = CHECKPOINT_EVERY
    read_ahead = 3

    @property
    def _disk(self) -> SimDisk:
        assert isinstance(self._storage, FolderStorage) and isinstance(self._storage.disk, SimDisk)
        return self._storage.disk


def log_of(partition: int, topic: str = TOPIC) -> Log:
    return Log("pulsar", "cluster", topic, str(partition))


def rows_of(content: bytes) -> list[tuple[int, int]]:
    """The rows in a file. Raises ValueError for a torn one."""
    if not content.endswith(b"\n"):
        raise ValueError("torn")
    return [(int(a), int(b)) for a, b in (line.split(b":") for line in content.splitlines())]


def without(content: bytes) -> bytes:
    """The file without the row that is erased."""
    return b"".join(b"%d:%d\n" % row for row in rows_of(content) if row != ERASED_ROW)


class Reader:
    """The program of one process; :meth:`run` returns when the broker has nothing left that is not acked."""

    writer_class: type[DatasetWriter] = Writer
    roll_rows = 2
    floors_above = 2  # intervals; small, so that a short run gets there

    def __init__(self, medium: SimDisk | SimBucket, broker: Broker, process: Process, split: str) -> None:
        self._broker = broker
        self._process = process
        self._split = split
        options = DatasetOptions(
            system="pulsar",
            cluster="cluster",
            columns=("value",),
            split=split,
            extension="rows",
            shared=not broker.ordered,
        )
        self._writer = self.writer_class(ROOT, options, medium)
        self._coverage = Coverage()
        self._new_roll()

    @property
    def has_seen(self) -> bool:
        """True once it knows that there is a dataset."""
        return bool(self._writer._identity._id)

    def run(self) -> None:
        while True:
            try:
                self._session()
                return
            except FolderRefusedError:
                raise  # not the business of this model; the sink goes on without some logs
            except (Superseded, SinkFailedError):
                continue  # as after a crash, only quicker

    def _new_roll(self) -> None:
        self._files: dict[str, StagedFile] = {}
        self._staged: dict[tuple[int, int], int] = {}  # how often each row was written
        self._starts: dict[int, Position] = {}

    def _session(self) -> None:
        self._coverage = self._writer.open()
        self._new_roll()
        self._step("connect")
        self._broker.connect(self._process)
        while True:
            self._step("receive")
            event = self._broker.receive(self._process)
            if isinstance(event, Assigned):
                self._assigned(event.partition)
            elif isinstance(event, Row):
                self._row(event.partition, event.number)
            elif self._has_something:
                self._commit()
            elif self._broker.finished():
                self._writer.close()
                return
            else:
                self._step("idle")

    @property
    def _has_something(self) -> bool:
        return bool(self._staged)

    def _assigned(self, partition: int) -> None:
        self._coverage = self._writer.refresh()
        if not self._writer.exists and self._broker.has_progress():
            raise SinkFailedError("the broker has progress, and there is no dataset")
        log = log_of(partition)
        if log not in self._coverage:
            first = Position(LEDGER, -1)
            self._commit([Span(log, first, first, 0)])

    def _row(self, partition: int, number: int) -> None:
        if self._coverage.covers(log_of(partition), Position(LEDGER, number)):
            self._ack(partition, number)
        elif not self._is_staged(partition, number):
            self._stage(partition, number)
            if len(self._staged) >= self.roll_rows:
                self._commit()

    def _is_staged(self, partition: int, number: int) -> bool:
        return (partition, number) in self._staged

    def _stage(self, partition: int, number: int) -> None:
        directory = level_directory(self._split, "none", topic=TOPIC, partition=str(partition))
        if directory not in self._files:
            self._files[directory] = self._writer.stage(directory)
        staged = self._files[directory]
        staged.file.write(b"%d:%d\n" % (partition, number))
        staged.rows += 1
        if self._broker.ordered and partition not in self._starts:
            start = self._coverage.end(log_of(partition))
            assert start is not None
            self._starts[partition] = start
        self._staged[partition, number] = self._staged.get((partition, number), 0) + 1

    def _spans(self) -> list[Span]:
        if self._broker.ordered:
            spans = []
            for partition, start in self._starts.items():
                counts = {number: count for (each, number), count in self._staged.items() if each == partition}
                end = Position(LEDGER, max(counts))
                spans.append(Span(log_of(partition), start, end, sum(counts.values())))
            return spans
        return [
            Span(log_of(partition), Position(LEDGER, number - 1), Position(LEDGER, number), count)
            for (partition, number), count in sorted(self._staged.items())
        ]

    def _commit(self, begun: Sequence[Span] = ()) -> None:
        spans, staged = [*begun, *self._spans()], list(self._staged)
        floors = {}
        if not self._broker.ordered:
            for partition in range(self._broker.partitions):
                log = log_of(partition)
                floor = self._broker.floor(partition)
                if len(self._coverage.intervals(log)) > self.floors_above and floor >= 0:
                    floors[log] = Position(LEDGER, floor)
        self._coverage = self._writer.commit(list(self._files.values()), spans, floors=floors)
        self._new_roll()
        self._acknowledge(spans, staged)

    def _acknowledge(self, spans: Sequence[Span], staged: Sequence[tuple[int, int]]) -> None:
        if self._broker.ordered:
            for span in spans:
                end = self._coverage.end(span.log)
                assert end is not None
                if end.b >= 0:
                    self._ack(int(span.log.partition), end.b)
        else:
            for partition, number in staged:
                self._ack(partition, number)

    def _ack(self, partition: int, number: int) -> None:
        self._step("ack")
        self._broker.ack(partition, number)

    def _step(self, kind: str) -> None:
        self._process.step(kind, "")


class Expiring(Reader):
    """A reader whose process expires all that is published after each of its commits; a failure is tried no more."""

    def __init__(self, medium: SimDisk | SimBucket, broker: Broker, process: Process, split: str) -> None:
        super().__init__(medium, broker, process, split)
        self._medium = medium

    def _commit(self, begun: Sequence[Span] = ()) -> None:
        super()._commit(begun)
        if begun:
            return
        try:
            found = expire(ROOT, -1, self._medium, make_writer=self.writer_class)
        except (Superseded, SinkFailedError, OSError, DatasetMismatchError):
            return  # the last one says that the dataset is gone: this is another process, which ends
        self._broker.on_expired(found.number)


def _look(file: BinaryIO, condition: Condition) -> Found:
    content = file.read()
    return Found(int(content != b"" and ERASED_ROW in rows_of(content)))


def _copy(file: BinaryIO, condition: Condition, write: Callable[[bytes], object]) -> int:
    left = without(file.read())
    if left:
        write(left)
    return left.count(b"\n")


class Erasing(Reader):
    """A reader whose process erases a row once it has landed it, and at its end."""

    def __init__(self, medium: SimDisk | SimBucket, broker: Broker, process: Process, split: str) -> None:
        super().__init__(medium, broker, process, split)
        self._medium = medium

    def run(self) -> None:
        super().run()
        self._erase()

    def _commit(self, begun: Sequence[Span] = ()) -> None:
        landed = ERASED_ROW in self._staged
        super()._commit(begun)
        if landed:
            self._erase()

    def _erase(self) -> None:
        names = self._broker.on_erasing()
        try:
            erase(
                ROOT,
                parse_condition("row = 'mine'"),
                self._medium,
                make_writer=self.writer_class,
                make_rewriter=lambda extension: Rewriter(_look, _copy),
            )
        except DatasetDamagedError:
            raise
        except (Superseded, SinkFailedError, OSError, DatasetError):
            return  # it failed, another one is at work, or the dataset is gone; it is tried again later
        self._broker.on_erased(names)
