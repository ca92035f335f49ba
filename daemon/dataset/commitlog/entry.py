"""Log entries: the record of one commit, as it is stored in ``_fastwire/log``.

An entry does not contain its own number: the names of its files follow from the name under which it is linked. It has
the CRC-32C of each file, and of the entry before. Entries of older versions have neither.
"""

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple, Protocol

import orjson

from fastwire.coverage import Coverage
from fastwire.decode.evolution import Column, columns_from_json, columns_to_json
from fastwire.position import Gap, Log, Position, Span, Until, format_position, nest, parse_position, unnest

from ...runtime.errors import DatasetDamagedError, DatasetMismatchError

LOG = "_fastwire/log"
STAGING = "_fastwire/staging"
CHECKPOINTS = "_fastwire/checkpoint"
DEAD_LETTERS = "_fastwire/diverted"
ERASING = "_fastwire/erasing"

FORMAT = 1

# Above this size an entry is compressed; below, it stays readable without a tool.
_PACK_BYTES = 64 << 10
_WRITER = re.compile("[0-9a-f]{16}")
_CHECKSUM = re.compile("[0-9a-f]{8}")
_GZIP_MAGIC = b"\x1f\x8b"


def entry_name(number: int) -> str:
    """Return the file name of log entry ``number``, which may not exist."""
    return f"{LOG}/{number // 1000:09d}/{number:012d}.json"


def timestamp(seconds: float) -> str:
    """Return seconds since 1970 as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_writer(name: str) -> bool:
    """Return True if ``name`` has the form of a writer's name: 16 hex digits."""
    return _WRITER.fullmatch(name) is not None


def pack(value: Any) -> bytes:
    """Return ``value`` as canonical JSON, compressed by gzip above 64 KiB."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    return gzip.compress(data, 6, mtime=0) if len(data) > _PACK_BYTES else data


def unpack(data: bytes) -> Any:
    """Decode the result of :func:`pack`. Raises ValueError."""
    if data[:2] == _GZIP_MAGIC:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as exc:
            raise ValueError(f"gzip: {exc}") from exc
    return orjson.loads(data)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a roll: ``directory`` is "" or ends with a slash, ``index`` is its number in the roll."""

    directory: str
    index: int
    rows: int
    nbytes: int
    checksum: int | None = None
    """CRC-32C of its content; None if an older version of fastwire has written it."""


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """Dead letters of one log: the number of undecodable entries, and of the rows in their metadata."""

    log: Log
    entries: int
    rows: int


class Erased(NamedTuple):
    """The file ``name`` without some of its rows: ``staged`` takes its place once the log entry is durable."""

    name: str
    staged: str
    rows: int
    nbytes: int
    checksum: int


class Replayed(NamedTuple):
    """Dead letters of a log entry: those with the numbers from ``first`` to ``last`` in their commit."""

    entry: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Replaying:
    """The intent to write dead letters to a topic: recorded before the first of them is sent.

    ``sender`` is the name under which they are sent, and ``ends`` are the ends of the topic's partitions before, as
    nested by ``fastwire.position.nest`` with positions as texts: it is read only by the command that needs it, because
    the system of the topic may be unknown elsewhere. Empty if the dead letters cannot be found again in the topic.
    """

    url: str
    topic: str
    sender: str
    dead_letters: tuple[Replayed, ...]
    ends: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "url": self.url,
            "topic": self.topic,
            "sender": self.sender,
            "letters": _ranges_to_json(self.dead_letters),
            "ends": dict(self.ends),
        }

    @classmethod
    def from_json(cls, value: Any) -> "Replaying":
        """Read what :meth:`to_json` has returned. Raises ValueError, KeyError and TypeError."""
        if not isinstance(ends := value["ends"], dict):
            raise ValueError(f"{ends!r:.60} are not positions")
        url, topic, sender = (_text(value[name]) for name in ("url", "topic", "sender"))
        return cls(url, topic, sender, _ranges_from_json(value["letters"]), ends)


class DeadLetterLike(Protocol):
    """A dead letter: an entry that could not be decoded."""

    @property
    def log(self) -> Log:
        """The log of the entry."""

    @property
    def position(self) -> Position:
        """The position of the entry in its log."""

    @property
    def reason(self) -> str:
        """The reason why it could not be decoded."""

    @property
    def payload(self) -> bytes:
        """The bytes as the broker sent them."""

    @property
    def rows(self) -> int:
        """The number of rows according to the entry's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One commit: the files of a roll with their spans, or progress without files, or the names of fenced writers.

    Of the rows that are not in files, ``sent`` ones are in a topic. Of the others, ``filtered``, a query has left out
    the ``unselected`` ones; the rest are dead letters. ``types`` are all columns of decoded values from this commit on,
    if it adds some or makes some wider.
    The files of all entries up to number ``expired`` may be deleted (0: none). The files of earlier entries that
    ``erased`` names have these sizes and checksums from here on. The dead letters ``replayed`` of earlier
    entries were written back to a topic; those of ``replaying`` are about to be, and ``closes`` is the number of the
    entry with such an intent that is over (0: none). ``before`` is the CRC-32C of the file of
    the log entry before (0 for entry 1); None if an older version of fastwire has written this one.
    """

    writer: str
    roll: int
    at: str
    files: tuple[DataFile, ...] = ()
    dead_letters: tuple[DataFile, ...] = ()
    spans: tuple[Span, ...] = ()
    dead_letter_counts: tuple[DeadLetterCount, ...] = ()
    filtered: int = 0
    unselected: int = 0
    sent: int = 0
    floors: tuple[tuple[Log, Position], ...] = ()
    fence: tuple[str, ...] = ()
    expired: int = 0
    erased: tuple[Erased, ...] = ()
    replayed: tuple[Replayed, ...] = ()
    replaying: Replaying | None = None
    closes: int = 0
    shared: bool = False
    types: tuple[Column, ...] = ()
    before: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows in the data files."""
        return sum(file.rows for file in self.files)

    @property
    def nbytes(self) -> int:
        """The size of the data files in bytes."""
        return sum(file.nbytes for file in self.files)

    @property
    def folders(self) -> set[str]:
        """The folders that its files are published into."""
        return {file.directory.rstrip("/") for file in self.files} | ({DEAD_LETTERS} if self.dead_letters else set())

    def moves(self, number: int, extension: str) -> Iterator[tuple[str, str]]:
        """Yield the (staged, published) names of all its files as log entry ``number``."""
        for file in self.files:
            yield self._staged(file), f"{file.directory}{number:012d}-{file.index}.{extension}"
        for file in self.dead_letters:
            yield self._staged(file), f"{DEAD_LETTERS}/{number:012d}-{file.index}.dead"

    def _staged(self, file: DataFile) -> str:
        return f"{STAGING}/{self.writer}/{self.roll}-{file.index}.part"

    def fold_into(self, coverage: Coverage) -> None:
        """Add the spans of this commit. Raises ValueError (OverlapError, UndeclaredGapError) if they do not fit."""
        for span in self.spans:
            coverage.add(span)
        for log, floor in self.floors:
            coverage.raise_floor(log, floor)

    def encode(self) -> bytes:
        """Return the content of the entry's file, without empty fields."""
        spans: dict[Log, list[Any]] = {}
        for span in self.spans:
            spans.setdefault(span.log, []).append(_span_to_json(span))
        last = {span.log: span.witness for span in self.spans}
        checksums = [file.checksum for file in _by_index(self.files, self.dead_letters)]
        facts = {
            "files": _files_to_json(self.files),
            "spans": nest(spans.items()),
            "witnesses": witnesses_to_json(last.items()),
            "ends": ends_to_json((span.log, span.until) for span in self.spans),
            "letters": _files_to_json(self.dead_letters),
            "diverted": nest((part.log, [part.entries, part.rows]) for part in self.dead_letter_counts),
            "floors": nest((log, format_position(log.system, floor)) for log, floor in self.floors),
            "filtered": self.filtered,
            "unselected": self.unselected,
            "sent": self.sent,
            "fence": self.fence,
            "expired": self.expired,
            "erased": [[*each[:4], _sum_to_json(each.checksum)] for each in self.erased],
            "replayed": _ranges_to_json(self.replayed),
            "replaying": self.replaying and self.replaying.to_json(),
            "closes": self.closes,
            "shared": self.shared,
            "types": columns_to_json(self.types),
            "crc32c": [] if None in checksums else [_sum_to_json(each) for each in checksums if each is not None],
        }
        value: dict[str, Any] = {"format": FORMAT, "writer": self.writer, "roll": self.roll, "at": self.at}
        value |= {name: fact for name, fact in facts.items() if fact}
        if self.files:
            value |= {"rows": self.rows, "bytes": self.nbytes}
        if self.before is not None:
            value["before"] = _sum_to_json(self.before)
        return pack(value)

    @classmethod
    def decode(cls, data: bytes, name: str) -> "LogEntry":
        """Decode the content of the file ``name``.

        Raises DatasetDamagedError, and DatasetMismatchError for an entry of a later format.
        """
        try:
            value = unpack(data)
            if _count(value["format"]) > FORMAT:
                raise DatasetMismatchError(
                    f"{name} has format {value['format']}, because a later version of fastwire writes this dataset; "
                    f"this version of fastwire knows {FORMAT}. Continue with that version"
                )
            if value["format"] != FORMAT:
                raise ValueError(f"there is no format {value['format']}")
            files, dead_letters = (list(_files_from_json(value.get(key, {}))) for key in ("files", "letters"))
            if "crc32c" in value:
                checksums = dict(
                    zip(_by_index(files, dead_letters), map(_sum_from_json, value["crc32c"]), strict=True)  # ValueError
                )
                files, dead_letters = (
                    [replace(file, checksum=checksums[file]) for file in each] for each in (files, dead_letters)
                )
            before = value.get("before")
            return cls(
                writer=_writer(value["writer"]),
                roll=_count(value["roll"]),
                at=_text(value["at"]),
                files=tuple(files),
                dead_letters=tuple(dead_letters),
                spans=_with_facts(
                    _spans_from_json(value.get("spans", {})),
                    witnesses_from_json(value.get("witnesses", {})),
                    ends_from_json(value.get("ends", {})),
                ),
                dead_letter_counts=tuple(
                    DeadLetterCount(log, _count(entries), _count(rows))
                    for log, (entries, rows) in unnest(value.get("diverted", {}))
                ),
                filtered=_count(value.get("filtered", 0)),
                unselected=_count(value.get("unselected", 0)),
                sent=_count(value.get("sent", 0)),
                floors=tuple(
                    (log, parse_position(log.system, _text(floor))) for log, floor in unnest(value.get("floors", {}))
                ),
                fence=tuple(_text(writer) for writer in value.get("fence", ())),
                expired=_count(value.get("expired", 0)),
                erased=tuple(map(_erased_from_json, value.get("erased", ()))),
                replayed=_ranges_from_json(value.get("replayed", ())),
                replaying=Replaying.from_json(value["replaying"]) if "replaying" in value else None,
                closes=_count(value.get("closes", 0)),
                shared=bool(value.get("shared", False)),
                types=columns_from_json(value.get("types", [])),
                before=None if before is None else _sum_from_json(before),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise DatasetDamagedError(f"{name} is damaged: {exc}. Restore it from a backup") from exc


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is not a text")
    return value


def _writer(value: Any) -> str:
    if not is_writer(_text(value)):
        raise ValueError(f"{value!r:.60} is not the name of a writer")
    return str(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.60} is not a count")
    return value


def _erased_from_json(value: Any) -> Erased:
    name, staged, rows, nbytes, checksum = value
    if ".." in _text(name).split("/") or name.startswith("/") or os.path.dirname(_text(staged)) != ERASING:
        raise ValueError(f"{name!r:.60} is not a file of a dataset")
    return Erased(name, staged, _count(rows), _count(nbytes), _sum_from_json(checksum))


def _ranges_to_json(ranges: Iterable[Replayed]) -> list[list[int]]:
    return [list(each) for each in ranges]


def _ranges_from_json(ranges: Any) -> tuple[Replayed, ...]:
    return tuple(Replayed(*map(_count, each)) for each in ranges)


def _sum_to_json(checksum: int) -> str:
    return f"{checksum:08x}"


def _sum_from_json(text: Any) -> int:
    if not _CHECKSUM.fullmatch(_text(text)):
        raise ValueError(f"{text!r:.60} is not a CRC-32C: 8 hex digits")
    return int(text, 16)


def witnesses_to_json(witnesses: Iterable[tuple[Log, int | None]]) -> dict[str, Any]:
    """Return the witnesses that are known, by log: texts, because not every JSON reader has 64 bits."""
    return nest((log, str(witness)) for log, witness in witnesses if witness is not None)


def witnesses_from_json(value: Any) -> dict[Log, int]:
    """Read what :func:`witnesses_to_json` returned. Raises ValueError."""
    return {log: int(_text(witness)) for log, witness in unnest(value)}


def ends_to_json(ends: Iterable[tuple[Log, Until | None]]) -> dict[str, Any]:
    """Return the ends of bounded runs that are set, by log: position and name of the run."""
    return nest((log, [format_position(log.system, end.position), end.run]) for log, end in ends if end is not None)


def ends_from_json(value: Any) -> dict[Log, Until]:
    """Read what :func:`ends_to_json` returned. Raises ValueError."""
    return {log: Until(parse_position(log.system, _text(at)), _text(run)) for log, (at, run) in unnest(value)}


def _with_facts(spans: Iterable[Span], witnesses: dict[Log, int], ends: dict[Log, Until]) -> tuple[Span, ...]:
    """Return the spans; the last one of each log has its witness and the end of the run."""
    found = list(spans)
    for at in range(len(found) - 1, -1, -1) if witnesses or ends else ():
        witness, until = witnesses.pop(found[at].log, None), ends.pop(found[at].log, None)
        if witness is not None or until is not None:
            found[at] = replace(found[at], witness=witness, until=until)
    return tuple(found)


def _by_index(*files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files in the order of ``crc32c`` in a log entry."""
    return sorted(chain(*files), key=lambda file: file.index)


def _files_to_json(files: tuple[DataFile, ...]) -> dict[str, list[list[int]]]:
    folders: dict[str, list[list[int]]] = {}
    for file in files:
        folders.setdefault(file.directory, []).append([file.index, file.rows, file.nbytes])
    return folders


def _files_from_json(folders: dict[str, list[list[int]]]) -> list[DataFile]:
    files = []
    for directory, parts in folders.items():
        if directory and (not directory.endswith("/") or directory.startswith("/") or ".." in directory.split("/")):
            raise ValueError(f"{directory!r} is not a folder of a dataset")
        files += [DataFile(directory, _count(index), _count(rows), _count(size)) for index, rows, size in parts]
    return sorted(files, key=lambda file: file.index)


def _span_to_json(span: Span) -> list[Any]:
    system = span.log.system
    parts: list[Any] = [format_position(system, span.start), format_position(system, span.end), span.rows]
    if span.gap is not None:
        parts += [format_position(system, span.gap.to), span.gap.reason]
    if span.held_from is not None:
        parts.append(format_position(system, span.held_from))
    return parts


def _spans_from_json(tree: Any) -> Iterator[Span]:
    for log, spans in unnest(tree):
        for start, end, rows, *more in spans:
            if len(more) > 3:
                raise ValueError(f"{log}: a span has at most 6 parts, not {3 + len(more)}")
            gap = more[:2] if len(more) > 1 else None
            yield Span(
                log,
                parse_position(log.system, _text(start)),
                parse_position(log.system, _text(end)),
                _count(rows),
                Gap(parse_position(log.system, _text(gap[0])), _text(gap[1])) if gap else None,
                parse_position(log.system, _text(more[-1])) if len(more) % 2 else None,
            )
