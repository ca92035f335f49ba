"""One run of the model: processes that advance one operation at a time, and a judge who sees what readers see."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from fastwire.coverage import Coverage
from fastwire.position import Log, Position
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint
from fastwire_daemon.dataset.commitlog.entry import LOG, STAGING, LogEntry, entry_name
from fastwire_daemon.dataset.commitlog.whole import NEWEST
from fastwire_daemon.dataset.description import DESCRIPTION
from fastwire_daemon.dataset.proof.report import VerifyReport
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetError, FolderRefusedError

from .broker import Broker, OrderedBroker, SharedBroker
from .reader import ERASED_ROW, LEDGER, ROOT, TOPIC, Erasing, Expiring, Reader, log_of, rows_of, without
from .scanning import ChunkedBroker, Scanning
from .store import SimBucket
from .world import Choices, File, Folder, Process, SimDisk, World

__all__ = ["SCENARIOS", "STORE_SCENARIOS", "Run", "Scenario", "Violation"]


class Violation(AssertionError):  # noqa: N818 - what it is called everywhere
    """The promise is broken."""


@dataclass(frozen=True)
class Scenario:
    """The pipelines of a run: their logs and folders."""

    name: str
    ordered: bool
    partitions: int
    rows: int
    split: str = "none"
    locks_lie: bool = False
    mounted: bool = False  # the folder of the topic is another mount
    store: bool = False  # the dataset is in an object store
    expires: bool = False  # all that is published is deleted after each commit
    erases: bool = False  # a row is erased once it has landed
    loses: bool = True  # the dataset may be lost, or entries of its log
    entries: str = ""  # what the rows of a partition are, where parts of chunked messages are among them

    def broker(self) -> Broker:
        if self.entries:
            return ChunkedBroker(self.partitions, self.entries)
        return (OrderedBroker if self.ordered else SharedBroker)(self.partitions, self.rows)

    def begin(self, program: type[Any]) -> "Run":
        """Return a run of this scenario; ``program`` is that of its processes."""
        return Run(self, program)


SCENARIOS = (
    tuple(
        Scenario(f"{name}{', locks lie' if lie else ''}", ordered, partitions, rows, split, lie)
        for lie in (False, True)
        for name, ordered, partitions, rows, split in (
            ("one partition in order", True, 1, 4, "none"),
            ("two partitions in order", True, 2, 3, "none"),
            ("two partitions in order, in folders", True, 2, 3, "partition"),
            ("shared", False, 1, 5, "none"),
            ("shared, two partitions in folders", False, 2, 3, "partition"),
        )
    )
    + tuple(
        Scenario(f"chunked messages interleave: {entries}", True, partitions, len(entries), entries=entries)
        for entries, partitions in (("aXYYbX", 1), ("aWbXYZYcZXW", 1), ("XYYX", 2))
    )
    + (
        Scenario("two partitions in order, in folders of another mount", True, 2, 2, "partition", mounted=True),
        Scenario("two partitions in order expire", True, 2, 2, "partition", expires=True),
        Scenario("shared, expires, locks lie", False, 1, 4, locks_lie=True, expires=True),
        Scenario("two partitions in folders, a row is erased", True, 2, 2, "partition", erases=True),
        Scenario("shared, a row is erased", False, 1, 4, erases=True),
    )
)


STORE_SCENARIOS = (
    *(
        Scenario(f"store, {name}{', leases lie' if lie else ''}", ordered, partitions, rows, split, lie, store=True)
        for lie in (False, True)
        for name, ordered, partitions, rows, split in (
            ("two partitions in order", True, 2, 3, "none"),
            ("two partitions in order, in folders", True, 2, 2, "partition"),
            ("shared", False, 1, 5, "none"),
        )
    ),
    *(
        Scenario(
            f"store, two partitions expire{', leases lie' if lie else ''}",
            True,
            2,
            2,
            "none",
            locks_lie=lie,
            store=True,
            expires=True,
        )
        for lie in (False, True)
    ),
    Scenario("store, two partitions, a row is erased", True, 2, 2, store=True, erases=True),
)


def number_of(name: str) -> int:
    """Return the number of the log entry that a visible file belongs to."""
    return int(os.path.basename(name)[:12])


class Program(Protocol):
    """The program of a process: ``run`` returns when all is acked. ``has_seen``: it knows that there is a dataset."""

    @property
    def has_seen(self) -> bool: ...
    def run(self) -> None: ...


class Slot:
    """A place where a process runs; when it is killed another one starts there."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.program: greenlet | None = None
        self.at = ("", "")
        self.reader: Program | None = None

    @property
    def knows(self) -> bool:
        """Return whether its process has seen the dataset."""
        return self.reader is not None and self.reader.has_seen

    @property
    def running(self) -> bool:
        return self.program is not None and not self.program.dead


class Run:
    """The world of one run; whoever drives it says who advances and what fails."""

    root = ROOT
    topic = TOPIC

    def __init__(self, scenario: Scenario, reader: type[Reader] = Reader, slots: int = 2) -> None:
        self.scenario = scenario
        special = ((Scanning, scenario.entries), (Expiring, scenario.expires), (Erasing, scenario.erases))
        kinds = [kind for kind, wanted in special if wanted]
        self._reader = type(f"Special{reader.__name__}", (*kinds, reader), {}) if kinds else reader
        self.world = World(locks_lie=scenario.locks_lie)
        self.broker = scenario.broker()
        self.slots = [Slot() for _ in range(slots)]
        self.steps = 0
        self.trace: list[str] = []
        self._born = 0
        self._seen: dict[str, bytes] = {}
        self._entries: dict[File, LogEntry] = {}
        self._log: dict[int, LogEntry] = {}  # remembered also when somebody deletes one
        self._restored = False
        self._clean: set[str] = set()  # files that must never show the erased row again
        self._deleted = 0  # files of log entries up to this one must never be seen again
        self._lost = ""  # what every process must refuse the dataset for
        self._data = Folder()
        self._away: Folder | None = None  # the true one, while the dataset is gone
        self._flapped = False  # it was gone once
        self._kept: dict[int, LogEntry] = {}  # its log when it went
        self._acks = 0
        self._put(self._data)
        if scenario.mounted:
            data_set = Folder()
            self._data.names["set"] = self._data.durable["set"] = data_set
            data_set.names[f"t={TOPIC}"] = data_set.durable[f"t={TOPIC}"] = Folder()
            self.world.mount = f"{self.root}/t={TOPIC}/"
        self.world.on_link = self._linked
        self.world.on_rename = self._renamed
        self.world.on_unlink = self._unlinked
        self.broker.on_ack = self._acked
        self.broker.on_expired = self._expired
        self.broker.on_erasing = self._erasing
        self.broker.on_erased = self._erased

    # --- driving

    def start(self, slot: Slot) -> None:
        if self._away is not None:
            self.trace.append("a process refuses to start: the broker has progress, and there is no dataset")
            return
        self._born += 1
        main = getcurrent()

        def step(kind: str, path: str) -> str | None:
            if process.dead:
                raise GreenletExit
            fault: str | None = main.switch((kind, path))
            return fault

        process = Process(f"p{self._born}", step)
        reader = self._program(process)
        slot.process, slot.reader = process, reader
        slot.program = greenlet(reader.run)
        self.trace.append(f"{process.name} starts")
        self._switch(slot, None)

    def _program(self, process: Process) -> Program:
        reader: Reader = self._reader(self._medium(process), self.broker, process, self.scenario.split)
        return reader

    def _medium(self, process: Process) -> SimDisk | SimBucket:
        return SimBucket(self.world, process, self.root) if self.scenario.store else SimDisk(self.world, process)

    def advance(self, slot: Slot, fault: str | None = None) -> None:
        """Let the process do the operation that it stands before, and go to the next."""
        assert slot.process is not None
        self.steps += 1
        self.trace.append(f"{slot.process.name} {slot.at[0]} {slot.at[1]} {fault or ''}")
        self._switch(slot, fault)

    def _switch(self, slot: Slot, fault: str | None) -> None:
        assert slot.program is not None and slot.process is not None
        try:
            at = slot.program.switch() if not slot.program else slot.program.switch(fault)
        except Violation:
            raise
        except (DatasetError, FolderRefusedError) as exc:
            # A dataset that vanishes and returns while it is opened looks damaged; what matters is that it is refused.
            expected = (self._restored or self._flapped) and isinstance(exc, DatasetDamagedError)
            if not (self.scenario.mounted or expected):
                raise Violation(f"{slot.process.name} fails: {exc!r}") from exc
            self.trace.append(f"{slot.process.name} refuses: {exc}")
        except Exception as exc:
            raise Violation(f"{slot.process.name} fails: {exc!r}") from exc
        else:
            if not slot.program.dead:
                slot.at = at
                if self._lost and at[0] == "connect" and self._away is None:
                    raise Violation(f"{slot.process.name} opens a dataset that {self._lost}")
                return
            self.trace.append(f"{slot.process.name} is done")
        self._bury(slot)

    def kill(self, slot: Slot) -> None:
        assert slot.process is not None and slot.program is not None
        self.trace.append(f"{slot.process.name} is killed before {slot.at[0]} {slot.at[1]}")
        slot.process.dead = True
        slot.program.throw(GreenletExit)
        self._bury(slot)

    def _bury(self, slot: Slot) -> None:
        process = slot.process
        assert process is not None
        process.dead = True
        self.broker.disconnect(process)
        for file in process.locks.values():
            if self.world.held.get(file) is process:
                del self.world.held[file]
        slot.process = slot.program = None

    def arrive(self, at: int = 0) -> None:
        """The store carries out a request that was delayed."""
        name, change = self.world.late.pop(at)
        self.trace.append(f"late: {name}")
        change()
        self.judge()

    def cut_power(self, choices: Choices) -> None:
        self.come_back()
        self.trace.append("power cut")
        for slot in self.slots:
            if slot.running:
                self.kill(slot)
        uncertain = [
            (each, number) for each in self.judges for number in each._read_log() if not each._is_certain(number)
        ]
        self.world.cut_power(choices)
        for each, number in uncertain:
            if self.world.find(f"{each.root}/{entry_name(number)}") is None:
                del each._log[number]
        self.judge()

    def vanish(self) -> None:
        """The file system of the dataset is unmounted, or the bucket is emptied: the place has nothing in it.

        Nothing happens before a row is acked, and before all processes have seen the dataset: until then one cannot
        know that there was a dataset.
        """
        known = all(slot.knows for slot in self.slots if slot.running)
        if self._away is None and self._acks and known:
            self.trace.append("the dataset is gone")
            self._kept = dict(self._read_log())
            self._away, self._flapped = self._data, True
            self._put(Folder())

    @property
    def vanished(self) -> bool:
        return self._away is not None

    def come_back(self) -> None:
        """The file system is mounted again: below it, nothing but folders was made. A bucket stays as it is."""
        if self._away is None or self.scenario.store:
            return
        self.trace.append("the dataset is back")
        if stray := [name for name, _file in self.world.walk(self._data) if name.endswith(DESCRIPTION)]:
            raise Violation(f"a dataset was created where one was lost: {stray}")
        self._put(self._away)
        self._away = None
        self._read_log()

    def _put(self, data: Folder) -> None:
        self._data = data
        self.world.root.names["data"] = self.world.root.durable["data"] = data

    def lose(self, which: str) -> None:
        """All processes end, and log entries are gone: the newest, first or middle one, or all of them."""
        self.come_back()
        for slot in self.slots:
            if slot.running:
                self.kill(slot)
        self.world.sync_all()
        self.world.late.clear()
        numbers = [number for number in self._read_log() if self.world.find(f"{self.root}/{entry_name(number)}")]
        if not numbers:
            return
        gone = {
            "newest": numbers[-1:],
            "first": numbers[:1],
            "middle": numbers[len(numbers) // 2 :][:1],
            "all": numbers,
        }[which]
        self.trace.append(f"log entries {gone} are lost")
        for number in gone:
            self._remove(f"{self.root}/{entry_name(number)}")
            del self._log[number]
        self._restored = True
        noted = [name for name in self._names(f"{self.root}/{NEWEST}") if name >= f"{gone[-1]:012d}"]
        emptied = len(gone) == len(numbers) and any(self._visible())
        if noted or gone[-1] < numbers[-1] or emptied:
            self._lost = f"lacks log entries {gone}"
        # What a power cut took back before is not published again without its log entry.
        self._seen = {name: file.content for name, file in self._visible()}

    def _names(self, path: str) -> list[str]:
        folder = self.world.find(path)
        return sorted(folder.names) if isinstance(folder, Folder) else []

    def _remove(self, path: str) -> None:
        folder = self.world.find(os.path.dirname(path))
        assert isinstance(folder, Folder)
        del folder.names[os.path.basename(path)], folder.durable[os.path.basename(path)]

    # --- judging

    @property
    def judges(self) -> "Sequence[Run]":
        """The judges of the datasets of this run: of one dataset it is the run itself."""
        return (self,)

    def _visible(self) -> Iterator[tuple[str, File]]:
        root = self.world.find(self.root)
        if isinstance(root, Folder):
            for name, node in root.names.items():
                if not name.startswith(("_", ".")):
                    if isinstance(node, Folder):
                        yield from (
                            (path, file) for path, file in self.world.walk(node, f"{name}/") if "/." not in path
                        )
                    elif isinstance(node, File):
                        yield name, node

    def _read_log(self) -> dict[int, LogEntry]:
        number = 0
        while True:
            number += 1
            file = self.world.find(path := f"{self.root}/{entry_name(number)}")
            if isinstance(file, File):
                if file not in self._entries:
                    self._entries[file] = LogEntry.decode(file.content, path)
                self._log[number] = self._entries[file]
            elif number not in self._log:
                return self._log

    def _is_certain(self, number: int) -> bool:
        """No power cut can take the log entry back; what a process has deleted is another matter."""
        path = f"{self.root}/{entry_name(number)}"
        return self.world.is_certain(path) or self.world.find(path) is None

    def _linked(self, path: str) -> None:
        if f"/{LOG}/" in path:
            self._read_log()

    def _renamed(self, path: str) -> None:
        if "/_fastwire/" not in path:
            self.judge()

    def _unlinked(self, path: str) -> None:
        name = os.path.basename(path)
        if (
            "/_fastwire/" not in path
            and not name.startswith(".")
            and number_of(path) > self._expired_up_to(certain=True)
        ):
            raise Violation(f"{path} is deleted, and no power cut may take back what says that it has expired")

    def _expired(self, number: int) -> None:
        if self._flapped:
            return  # a process that finds nothing has deleted nothing; the next one does it
        self._deleted = max(self._deleted, number)
        self.judge()

    def _erasing(self) -> set[str]:
        return {target for number, entry in self._read_log().items() for _, target in entry.moves(number, "rows")}

    def _erased(self, names: set[str]) -> None:
        if not self._flapped:
            self._clean |= names
            self.judge()

    def _unerased(self, name: str, content: bytes) -> bytes:
        """Return what the file was before a row of it was erased, as it may be."""
        before = self._seen.get(name)
        if not self.scenario.erases or before is None:
            return content
        if self._restored:  # what the log said may be lost
            return before if content == without(before) else content
        if name in self._clean and content != without(before):
            raise Violation(f"{name} has a row that was erased")
        if content == before or content != without(before):
            return content
        if not any(
            each.name == name and self._is_certain(number)
            for number, entry in self._read_log().items()
            for each in entry.erased
        ):
            raise Violation(f"{name} lacks a row, and a power cut could take back what says so")
        return before

    def _expired_up_to(self, *, certain: bool = False) -> int:
        log = self._read_log()
        return max(
            (entry.expired for number, entry in log.items() if not certain or self._is_certain(number)), default=0
        )

    def judge(self) -> None:
        """Check a plain listing: whole files, no row twice, log order, and only files that are certain to stay."""
        if self._away is not None:
            return  # nobody looks at the place of a dataset that is gone
        files = dict(self._visible())
        rows: set[tuple[int, int]] = set()
        for name, file in files.items():
            whole = self._unerased(name, file.content)
            try:
                content = rows_of(whole)
            except ValueError:
                raise Violation(f"{name} is torn: {file.content!r}") from None
            for row in content:
                if row in rows and not self._restored:
                    raise Violation(f"row {row} is visible twice")
                rows.add(row)
            if self._seen.setdefault(name, whole) != whole:
                raise Violation(f"{name} has changed")
        if self._restored:
            return  # what was visible stays as it is, and nothing more can be promised
        if back := [name for name in files if number_of(name) <= self._deleted]:
            raise Violation(f"expired, and visible again: {back}")
        expected: set[str] = set()
        complete = True
        expired = self._expired_up_to()
        for number, entry in self._read_log().items():
            names = {target for _source, target in entry.moves(number, "rows")}
            visible = names & files.keys()
            if number <= expired:
                expected |= names
                continue
            if visible and not complete:
                raise Violation(f"log entry {number} is visible before an earlier one")
            if visible and not self._is_certain(number):
                raise Violation(f"log entry {number} is visible, and a power cut could take it back")
            complete = complete and visible == names
            expected |= names
        if stray := files.keys() - expected:
            raise Violation(f"visible without a log entry: {sorted(stray)}")

    def _acked(self, partition: int, number: int) -> None:
        self._acks += 1
        if self._restored:
            return
        position = Position(LEDGER, number)
        for log_number, entry in (self._read_log() if self._away is None else self._kept).items():
            for span in entry.spans:
                if span.log == log_of(partition, self.topic) and span.start < position <= span.end:
                    if not self._is_certain(log_number):
                        raise Violation(f"row {(partition, number)} is acked, and a power cut could take it back")
                    return
        raise Violation(f"row {(partition, number)} is acked and not in the log")

    def settle(self, *, anew: bool = True) -> None:
        """No more faults: processes run until all is acked; then everything must be there once, and nothing else.

        ``anew``: a new process does that, alone. Otherwise those that run go on (then locks must not lie, or they would
        fence each other for ever).
        """
        self.world.full = False
        self.come_back()
        if self._away is not None:
            self._run_out()
            return
        while self.world.late:
            self.arrive()
        if anew:
            for slot in self.slots:
                if slot.running:
                    self.kill(slot)
        else:
            self._run_on()
        # Also when all is acked: whoever starts next finds everything in order.
        self.start(self.slots[0])
        self._run_on()
        self.judge_end()

    def judge_end(self) -> None:
        """Check that everything is there once and nothing else, after a last process has ended."""
        self.judge()
        expired = self._expired_up_to()
        lost = self._seen.keys() - dict(self._visible()).keys()
        if lost := {name for name in lost if number_of(name) > expired}:
            raise Violation(f"was visible, and is gone: {sorted(lost)}")
        if self._restored:
            return
        if self.scenario.mounted:
            if any(entry.files for entry in self._read_log().values()):
                raise Violation("files are committed that can never become visible")
            return
        staging = self.world.find(f"{self.root}/{STAGING}")
        # In a store, a folder goes with the last thing in it.
        if staging is not None if self.scenario.store else not isinstance(staging, Folder) or staging.names:
            raise Violation("staging is not empty")
        if self.scenario.erases and any(
            ERASED_ROW in rows_of(file.content) for _, file in self._visible() if file.content
        ):
            raise Violation("a row is still there that was to be erased")
        # Whatever has expired was visible before.
        landed = sorted(row for content in self._seen.values() for row in rows_of(content))
        if landed != sorted(self.broker.produced()):
            raise Violation(f"produced {sorted(self.broker.produced())}, landed {landed}")
        self._check_log()
        if problems := self._verify().problems:
            raise Violation(f"verify finds {problems}")

    def _run_out(self) -> None:
        """Let the processes try in vain for a while: nothing is acked, and no dataset is created."""
        for _ in range(200):
            for slot in self.slots:
                if slot.running:
                    self.advance(slot)
        if self.world.find(f"{self.root}/{DESCRIPTION}") is not None:
            raise Violation("a dataset was created where one was lost")

    def harm(self) -> None:
        """Reason the dataset in one way after the other, all at rest: ``verify`` must see each."""
        if self._restored or self.scenario.mounted or self._away is not None:
            return
        visible = list(self._visible())
        for name, file in visible:
            self._must_be_seen(f"a changed byte in {name}", {file: file.content.replace(b":", b";", 1)})
        for (name, file), (other_name, other) in pairwise(visible):
            if file.content != other.content:
                swapped = {file: other.content, other: file.content}
                self._must_be_seen(f"{name} and {other_name} exchanged", swapped)
        *earlier, (newest, last) = sorted(self._read_log().items())
        for number, _entry in earlier:
            file = self._file_of(number)
            changed = {file: file.content.replace(b'"at":"20', b'"at":"19')}
            self._must_be_seen(f"another log entry {number}", changed)
        if last.files:
            folder = self.world.find(os.path.dirname(f"{self.root}/{entry_name(newest)}"))
            assert isinstance(folder, Folder)
            file = self._file_of(newest)
            name = next(name for name, node in folder.names.items() if node is file)
            del folder.names[name]
            self._must_be_seen(f"log entry {newest} gone and its files there", {})
            folder.names[name] = file

    def _file_of(self, number: int) -> File:
        file = self.world.find(f"{self.root}/{entry_name(number)}")
        assert isinstance(file, File)
        return file

    def _must_be_seen(self, what: str, contents: dict[File, bytes]) -> None:
        before = {file: file.content for file in contents}
        for file, content in contents.items():
            file.content = content
        if self._verify().ok:
            raise Violation(f"verify does not see {what}")
        for file, content in before.items():
            file.content = content

    def _verify(self) -> VerifyReport:
        onlooker = Process("verify", lambda kind, path: None)
        return verify(self.root, medium=self._medium(onlooker), deep=True)

    def _run_on(self) -> None:
        for _ in range(5_000):
            running = [slot for slot in self.slots if slot.running]
            if not running:
                return
            for slot in running:
                if slot.running:
                    self.advance(slot)
        raise Violation("it never comes to rest")

    def _check_log(self) -> None:
        """The log adds up, says of each hole what was held there, and each checkpoint is a function of it."""
        state = Checkpoint(0, Coverage())
        checkpoints = {}
        held: list[tuple[Log, Position, Position]] = []
        for _number, entry in sorted(self._read_log().items()):
            try:
                state.fold(entry)
            except ValueError as exc:
                raise Violation(f"the log does not add up: {exc}") from exc
            held += ((span.log, span.held_from, span.start) for span in entry.spans if span.held_from is not None)
            for log in state.coverage.logs() if self.scenario.ordered else ():
                for low, high in state.coverage.holes(log):
                    if not any(each == log and start <= low and high <= end for each, start, end in held):
                        raise Violation(f"log entry {state.number} leaves a hole from {low} to {high} without a word")
            checkpoints[f"{state.number:012d}.json"] = state.encode()
        folder = self.world.find(f"{self.root}/_fastwire/checkpoint")
        if isinstance(folder, Folder):
            for name, node in folder.names.items():
                assert isinstance(node, File)
                if node.content != checkpoints.get(name):
                    raise Violation(f"checkpoint {name} is not what the log says")
