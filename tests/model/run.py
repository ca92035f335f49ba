"""One run of the model: processes that advance one operation at a time, on a disk or a store that fails."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from fastwire_daemon.dataset.commitlog.entry import entry_name
from fastwire_daemon.dataset.commitlog.whole import NEWEST
from fastwire_daemon.dataset.description import DESCRIPTION
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetError, FolderRefusedError

from .broker import Broker, OrderedBroker, SharedBroker
from .judge import Judge, Violation
from .reader import TOPIC, Erasing, Expiring, Reader
from .scanning import ChunkedBroker, Scanning
from .world import Choices, Folder, Process, World


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
        *(
            Scenario(f"{name}, a row is erased{', locks lie' if lie else ''}", ordered, *sizes, split, lie, erases=True)
            for lie in (False, True)
            for name, ordered, sizes, split in (
                ("two partitions in folders", True, (2, 2), "partition"),
                ("shared", False, (1, 4), "none"),
            )
        ),
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
    *(
        Scenario(
            f"store, two partitions, a row is erased{', leases lie' if lie else ''}",
            True,
            2,
            2,
            locks_lie=lie,
            store=True,
            erases=True,
        )
        for lie in (False, True)
    ),
)


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


class Run(Judge):
    """The world of one run; whoever drives it says who advances and what fails."""

    def __init__(self, scenario: Scenario, reader: type[Reader] = Reader, slots: int = 2) -> None:
        super().__init__(scenario, World(locks_lie=scenario.locks_lie), scenario.broker())
        special = ((Scanning, scenario.entries), (Expiring, scenario.expires), (Erasing, scenario.erases))
        kinds = [kind for kind, wanted in special if wanted]
        self._reader = type(f"Special{reader.__name__}", (*kinds, reader), {}) if kinds else reader
        self.slots = [Slot() for _ in range(slots)]
        self.steps = 0
        self.trace: list[str] = []
        self._born = 0
        self._lost = ""  # what every process must refuse the dataset for
        self._data = Folder()
        self._put(self._data)
        if scenario.mounted:
            data_set = Folder()
            self._data.names["set"] = self._data.durable["set"] = data_set
            data_set.names[f"t={TOPIC}"] = data_set.durable[f"t={TOPIC}"] = Folder()
            self.world.mount = f"{self.root}/t={TOPIC}/"

    @property
    def judges(self) -> Sequence[Judge]:
        """The judges of the datasets of this run: of one dataset it is the run itself."""
        return (self,)

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
        know that there was a dataset. What was to be created before is not created afterwards: a log entry would look
        like the predecessor of the next one, a description as if another process had begun anew.
        """
        known = all(slot.knows for slot in self.slots if slot.running)
        if self._away is None and self._acks and known:
            self.trace.append("the dataset is gone")
            self._kept = dict(self._read_log())
            self.world.late = [(name, change) for name, change in self.world.late if " create " not in name]
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

    def _run_out(self) -> None:
        """Let the processes try in vain for a while: nothing is acked, and no dataset is created."""
        for _ in range(200):
            for slot in self.slots:
                if slot.running:
                    self.advance(slot)
        if self.world.find(f"{self.root}/{DESCRIPTION}") is not None:
            raise Violation("a dataset was created where one was lost")

    def _run_on(self) -> None:
        for _ in range(5_000):
            running = [slot for slot in self.slots if slot.running]
            if not running:
                return
            for slot in running:
                if slot.running:
                    self.advance(slot)
        raise Violation("it never comes to rest")
