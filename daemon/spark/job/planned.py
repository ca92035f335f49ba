"""The records of each batch, by the checkpoint, in the terms in which a table remembers what has landed.

A batch is identified by what it reads and never by its number: a checkpoint that is older than its table gives the
numbers again, for other records.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span, positions_of

from ...dataset.commitlog.entry import LogEntry, entry_name
from ...dataset.description import DESCRIPTION, read_description
from ...dataset.place import storage_at
from ...runtime.errors import ConfigurationRefused, DatasetError
from ..source.offsets import Offsets, read_offsets
from ..source.ranges import QueryPartition
from .checkpoint import files_between, read_end

DATASET = "dataset"
_CLUSTER = ""  # the job may be renamed, and its brokers get other addresses


@dataclass(frozen=True, slots=True)
class Planned:
    """The records of one batch: ``spans``, without numbers of rows, and the logs that begin with it.

    ``files`` are the spans of single files by their names, where a landed dataset is read.
    """

    spans: tuple[Span, ...]
    begun: Collection[Log] = ()
    files: Mapping[str, Span] = field(default_factory=dict)

    @property
    def full(self) -> list[Span]:
        """The spans in which records may be."""
        return [span for span in self.spans if positions_of(span.log.system).precedes(span.start, span.end)]

    def news(self, coverage: Coverage, landed: Collection[str] = ()) -> Sequence[Span]:
        """Return the spans that a table with ``coverage`` gets: none of the files ``landed``, none without an extent.

        An empty span makes a log known, once.
        """
        if landed:
            return joined([span for name, span in self.files.items() if name not in landed])
        full = set(self.full)
        return [span for span in self.spans if span in full or span.log not in coverage]


class PlannedBatches(Protocol):
    """Reads what Spark has planned for a batch before it runs the batch."""

    def of(self, batch: int) -> Planned:
        """Return the records of ``batch``, the last one of the checkpoint.

        Raises ConfigurationRefused if the checkpoint does not tell, and DatasetError for a dataset that is not there.
        """

    def begin(self, coverage: Coverage) -> None:
        """Take the source for the one whose records a table with ``coverage`` has. Raises as ``check``."""

    def check(self) -> None:
        """Look whether the source is still the one of the table, or that of ``begin`` for a new table.

        Raises ConfigurationRefused for another one, and DatasetError for a dataset that is not there.
        """


class BrokerBatches:
    """The batches of a query of ``format("fastwire")``, whose offsets are positions."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint

    def of(self, batch: int) -> Planned:
        """See ``PlannedBatches``."""
        document = read_end(self._checkpoint, batch)
        ended = read_offsets(document, str(document.get("sys", "")))
        before = None
        if batch and ended.init is None:
            before = read_offsets(read_end(self._checkpoint, batch - 1), ended.system)
        starts = ended.begun(before)
        spans, begun = [], []
        for partition, end in ended.positions.items():
            incarnation = ended.incarnations.get(partition.topic, "0")
            log = Log(ended.system, _CLUSTER, partition.topic, str(partition.index), incarnation)
            spans.append(Span(log, starts.get(partition, end), end, 0))
            if ended.init is not None or partition in ended.new or partition not in starts:
                begun.append(log)
        return Planned(tuple(spans), frozenset(begun))

    def begin(self, coverage: Coverage) -> None:
        """See ``PlannedBatches``: the positions of each batch are compared."""

    def check(self) -> None:
        """See ``PlannedBatches``."""


class DatasetBatches:
    """The batches of a query over the files of the landed dataset at ``path``."""

    def __init__(self, checkpoint: Path, path: Path) -> None:
        self._checkpoint = checkpoint
        self._path = path
        self._id = ""
        self._storage = storage_at(path, None, patient=False)
        self._ends = lru_cache(1024)(self._read_ends)

    def of(self, batch: int) -> Planned:
        """See ``PlannedBatches``."""
        upto = int(read_end(self._checkpoint, batch)["logOffset"])
        after = int(read_end(self._checkpoint, batch - 1)["logOffset"]) if batch else -1
        self.check()
        log = Log(DATASET, _CLUSTER, self._id, "-1")
        files = {}
        for path in files_between(self._checkpoint, after, upto):
            name = unquote(path).rpartition("/")[2]
            number, _, index = name.partition(".")[0].partition("-")
            ends = self._ends(int(number)) if number.isdecimal() else {}
            if not index.isdecimal() or int(index) not in ends:
                raise DatasetError(f"{unquote(path)} is not a file that the daemon has landed: move it away")
            files[name] = Span(log, *ends[int(index)], 0)
        return Planned(tuple(joined(files.values())), (log,), files)

    def begin(self, coverage: Coverage) -> None:
        """See ``PlannedBatches``."""
        self._id = next((log.topic for log in coverage.logs() if log.system == DATASET), "")
        self.check()

    def check(self) -> None:
        """See ``PlannedBatches``: Spark knows files by their paths, and would skip those of another dataset there."""
        found = dataset_id(self._path)
        self._id = self._id or found
        if found != self._id:
            raise ConfigurationRefused(
                f"the dataset at {self._path} is not the one that the job has read: it has the id {found}, and the "
                f"table was made of {self._id}. Files with the names of earlier ones would not be read. Put the "
                "old dataset back, or give the job a new checkpoint and a new table"
            )

    def _read_ends(self, number: int) -> Mapping[int, tuple[Position, Position]]:
        """Return the start and the end of each file of log entry ``number`` of the dataset, by its index."""
        name = entry_name(number)
        data = self._storage.read(name)
        indexes = [] if data is None else [file.index for file in LogEntry.decode(data, name).files]
        places = [Position(number, index) for index in (0, *indexes[1:])][: len(indexes)]
        places.append(Position(number + 1, 0))
        return dict(zip(indexes, pairwise(places), strict=True))


def dataset_id(path: Path) -> str:
    """Return the id of the landed dataset at ``path``. Raises DatasetError if there is none."""
    try:
        return read_description((path / DESCRIPTION).read_bytes(), str(path)).id
    except OSError as exc:
        raise DatasetError(f"the dataset at {path} is gone: is its folder mounted? ({exc.strerror})") from None


def joined(spans: Collection[Span]) -> list[Span]:
    """Return spans of files of one log in order; those that join are one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: each.start):
        if found and found[-1].end == span.start:
            found[-1] = Span(span.log, found[-1].start, span.end, 0)
        else:
            found.append(span)
    return found


def landed_ranges(coverage: Coverage, last: Offsets | None) -> Offsets | None:
    """Return what has landed of the logs of brokers as the end of one batch: ``init`` are the starts of the logs.

    Of several incarnations of a topic that of ``last`` counts, the last end in the checkpoint. None if none is known.
    """
    logs = [log for log in coverage.logs() if positions_of(log.system).number_columns]
    known: dict[str, set[str]] = {}
    for log in logs:
        known.setdefault(log.topic, set()).add(log.incarnation)
    present = {} if last is None else last.incarnations
    chosen = {topic: min(texts) if len(texts) == 1 else present.get(topic, "0") for topic, texts in known.items()}
    init, ends = {}, {}
    for log in logs:
        if log.incarnation == chosen[log.topic]:
            start, end = coverage.start(log), coverage.end(log)
            assert start is not None and end is not None
            partition = QueryPartition(log.topic, int(log.partition))
            init[partition], ends[partition] = start, end
    named = {topic: text for topic, text in chosen.items() if text != "0"}
    return Offsets(logs[0].system, ends, init=init, incarnations=named) if ends else None
