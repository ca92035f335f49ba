"""The judge of one dataset of the model, who sees what readers see: whole files, each row once, and nothing that a
power cut could take back.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from fastwire.coverage import Coverage
from fastwire.position import Log, Position
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint
from fastwire_daemon.dataset.commitlog.entry import LOG, STAGING, LogEntry, entry_name
from fastwire_daemon.dataset.proof.report import VerifyReport
from fastwire_daemon.dataset.proof.verify import verify

from .broker import Broker
from .reader import ERASED_ROW, LEDGER, ROOT, TOPIC, log_of, rows_of, without
from .store import SimBucket
from .world import File, Folder, Process, SimDisk, World

if TYPE_CHECKING:
    from .run import Scenario


class Violation(AssertionError):  # noqa: N818 - what it is called everywhere
    """The promise is broken."""


def number_of(name: str) -> int:
    """Return the number of the log entry that a visible file belongs to."""
    return int(os.path.basename(name)[:12])


class Judge:
    """Looks at a dataset whenever a name in it changes; ``_away``, ``_flapped`` and ``_restored`` say what happened."""

    def __init__(
        self, scenario: "Scenario", world: World, broker: Broker, root: str = ROOT, topic: str = TOPIC
    ) -> None:
        self.scenario = scenario
        self.world = world
        self.broker = broker
        self.root = root
        self.topic = topic
        self._seen: dict[str, bytes] = {}
        self._entries: dict[File, LogEntry] = {}
        self._log: dict[int, LogEntry] = {}  # remembered also when somebody deletes one
        self._restored = False
        self._clean: set[str] = set()  # files that must never show the erased row again
        self._deleted = 0  # files of log entries up to this one must never be seen again
        self._away: Folder | None = None  # the true one, while the dataset is gone
        self._flapped = False  # it was gone once
        self._kept: dict[int, LogEntry] = {}  # its log when it went
        self._acks = 0
        world.on_link = self._linked
        world.on_rename = self._renamed
        world.on_unlink = self._unlinked
        broker.on_ack = self._acked
        broker.on_expired = self._expired
        broker.on_erasing = self._erasing
        broker.on_erased = self._erased

    def _medium(self, process: Process) -> SimDisk | SimBucket:
        return SimBucket(self.world, process, self.root) if self.scenario.store else SimDisk(self.world, process)

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
