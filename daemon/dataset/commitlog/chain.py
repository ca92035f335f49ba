"""Checks of sequences: spans of a log that is read in order, log entries of a dataset, and their files."""

from collections.abc import Iterator, Mapping, Sequence

from crc32c import crc32c

from fastwire.coverage import Coverage, OverlapError, UndeclaredGapError
from fastwire.position import Log, Position, Span, positions_of

from ...runtime.errors import DatasetDamagedError
from ..storage.base import Storage
from .entry import LogEntry, entry_name

READ_AHEAD_BYTES = 1 << 20
_READ_AHEAD = 64  # log entries


def check_chain(coverage: Coverage, span: Span) -> None:
    """Raise UndeclaredGapError if a source that is read in order has skipped positions without a declared gap.

    Checked only if all of Coverage was read in order: after a Shared subscription there may be holes.
    """
    log, positions = span.log, positions_of(span.log.system)
    begin, end = coverage.start(log), coverage.end(log)
    if begin is None or end is None or not positions.ordered or positions.scattered:
        return
    intervals = coverage.intervals(log)
    if len(intervals) > 1 or (intervals and intervals[0][0] != begin):
        return
    behind = span.start if span.held_from is None else min(span.start, span.held_from)
    if positions.precedes(end, behind) and positions.precedes(behind, span.reach):
        raise UndeclaredGapError(
            f"{log}: a roll starts at {positions.format(span.start)}, but the committed positions end at "
            f"{positions.format(end)}, and no gap was declared"
        )


def check_fit(
    trial: Coverage, spans: Sequence[Span], floors: Mapping[Log, Position], *, ordered: bool, single: str = ""
) -> None:
    """Add ``spans`` and ``floors`` to ``trial``. Raises OverlapError if it has some of them.

    With ``single``, the name of a system, it is also raised for another topic of it. Raises UndeclaredGapError like
    :func:`check_chain` if the source is read in order.
    """
    known = {log.topic for log in trial.logs() if log.system == single}
    if single and (others := known - {span.log.topic for span in spans}):
        raise OverlapError(f"the dataset has records of {others.pop()}, and it can have those of one writer only")
    for span in spans:
        if ordered:
            check_chain(trial, span)
        trial.add(span)
    for log, floor in floors.items():
        trial.raise_floor(log, floor)


def entries_behind(storage: Storage, number: int, most: int) -> list[bytes]:
    """The log entries that follow entry ``number``, packed: at most ``most``, and no more after 1 MiB of them."""
    entries: list[bytes] = []
    held = 0
    while len(entries) < most and held < READ_AHEAD_BYTES:
        data = storage.read(entry_name(number + 1 + len(entries)))
        if data is None:
            break
        entries.append(data)
        held += len(data)
    return entries


def all_entries(storage: Storage) -> Iterator[tuple[int, LogEntry]]:
    """Yield all log entries with their numbers. Raises DatasetDamagedError."""
    number = 0
    while found := entries_behind(storage, number, _READ_AHEAD):
        for data in found:
            number += 1
            yield number, LogEntry.decode(data, storage.path(entry_name(number)))


def tail_of(storage: Storage, number: int) -> int:
    """Return the CRC-32C of log entry ``number``, up to which a checkpoint was read; 0 for the beginning of the log.

    Raises DatasetDamagedError if it is missing.
    """
    if not number:
        return 0
    name = entry_name(number)
    data = storage.read(name)
    if data is None:
        raise DatasetDamagedError(
            f"{storage.path(name)} is missing, but there is a checkpoint of it: the log has lost its end."
            " Restore the whole dataset"
        )
    return crc32c(data)


def check_tail(entry: LogEntry, tail: int, name: str) -> None:
    """Raise DatasetDamagedError unless ``entry`` was written after the entry whose CRC-32C is ``tail``."""
    if entry.before not in (None, tail):
        raise DatasetDamagedError(
            f"{name} was written after another log entry than the one before it: one of them was replaced. "
            "Restore the whole dataset"
        )


def names_are_free(storage: Storage, entry: LogEntry, number: int, extension: str) -> bool:
    """Return True if the names of the files of ``entry`` as log entry ``number`` are free; False if that entry exists.

    Raises DatasetDamagedError if a name is taken without a log entry: the log has lost its end.
    """
    for _, name in entry.moves(number, extension):
        if storage.exists(name):
            if storage.exists(entry_name(number)):
                return False
            raise DatasetDamagedError(
                f"{storage.path(name)} exists, but the commit log ends with entry {number - 1}: "
                "the end of the log is lost. Restore the whole dataset; nothing was written"
            )
    return True
