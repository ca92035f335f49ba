"""Log entries: what one commit says, as it stands in ``_fastwire/log``.

An entry does not contain its own number: the same file is linked under the next free one when another writer was first,
and the names of its files follow from where it got.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from fastwire.position import Coverage, Gap, Log, Position, Span, format_position, nest, parse_position, unnest

from ..errors import DatasetDamagedError

__all__ = [
    "CHECKPOINTS",
    "DIVERTED",
    "LOG",
    "STAGING",
    "DataFile",
    "Diverted",
    "Letter",
    "LogEntry",
    "count_letters",
    "entry_name",
    "is_writer",
    "pack",
    "unpack",
]

LOG = "_fastwire/log"
STAGING = "_fastwire/staging"
CHECKPOINTS = "_fastwire/checkpoint"
DIVERTED = "_fastwire/diverted"

FORMAT = 1

# Above this, text by the partition is worth packing; below, anybody can read it without a tool.
_PACK_BYTES = 64 << 10
_WRITER = re.compile("[0-9a-f]{16}")
_GZIP_MAGIC = b"\x1f\x8b"


def entry_name(number: int) -> str:
    """Where log entry ``number`` is, whether it exists or not."""
    return f"{LOG}/{number // 1000:09d}/{number:012d}.json"


def is_writer(name: str) -> bool:
    """Whether ``name`` is one that writers give themselves: 16 hex digits."""
    return _WRITER.fullmatch(name) is not None


def pack(value: Any) -> bytes:
    """JSON, the same bytes for the same value; gzip inside when it is long."""
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    return gzip.compress(data, 6, mtime=0) if len(data) > _PACK_BYTES else data


def unpack(data: bytes) -> Any:
    """The reverse of :func:`pack`. Raises ValueError."""
    if data[:2] == _GZIP_MAGIC:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as exc:
            raise ValueError(f"gzip: {exc}") from exc
    return orjson.loads(data)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a roll: ``directory`` is "" or ends with a slash, ``index`` its place in the roll."""

    directory: str
    index: int
    rows: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Diverted:
    """Dead letters of one log: entries that could not be decoded, and the rows they claim to hold."""

    log: Log
    entries: int
    rows: int


class Letter(Protocol):
    """A dead letter: ``payload`` as the broker sent it, ``rows`` as its metadata claim."""

    @property
    def log(self) -> Log:
        """Where it was."""

    @property
    def position(self) -> Position:
        """Behind which position of its log it ends."""

    @property
    def reason(self) -> str:
        """Why it could not be decoded."""

    @property
    def payload(self) -> bytes:
        """What came."""

    @property
    def rows(self) -> int:
        """How many rows are lost with it."""


def count_letters(letters: Iterable[Letter]) -> tuple[Diverted, ...]:
    """Entries and rows per log."""
    counts: dict[Log, list[int]] = {}
    for letter in letters:
        count = counts.setdefault(letter.log, [0, 0])
        count[0] += 1
        count[1] += letter.rows
    return tuple(Diverted(log, entries, rows) for log, (entries, rows) in counts.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One commit: files of a roll and the spans they land, or only progress, or the names of fenced writers."""

    writer: str
    roll: int
    at: str
    files: tuple[DataFile, ...] = ()
    letters: tuple[DataFile, ...] = ()
    spans: tuple[Span, ...] = ()
    diverted: tuple[Diverted, ...] = ()
    filtered: int = 0
    floors: tuple[tuple[Log, Position], ...] = ()
    fence: tuple[str, ...] = ()
    shared: bool = False

    @property
    def rows(self) -> int:
        """Rows in the visible files."""
        return sum(file.rows for file in self.files)

    @property
    def nbytes(self) -> int:
        """Bytes of the visible files."""
        return sum(file.nbytes for file in self.files)

    @property
    def folders(self) -> set[str]:
        """Names of the folders that its files are published into."""
        return {file.directory.rstrip("/") for file in self.files} | ({DIVERTED} if self.letters else set())

    def moves(self, number: int, extension: str) -> Iterator[tuple[str, str]]:
        """(staged, published) names of all its files, once it is log entry ``number``."""
        for file in self.files:
            yield self._staged(file), f"{file.directory}{number:012d}-{file.index}.{extension}"
        for file in self.letters:
            yield self._staged(file), f"{DIVERTED}/{number:012d}-{file.index}.dead"

    def _staged(self, file: DataFile) -> str:
        return f"{STAGING}/{self.writer}/{self.roll}-{file.index}.part"

    def fold_into(self, coverage: Coverage) -> None:
        """Add what this commit landed. Raises ValueError (OverlapError, UndeclaredGapError) if it does not fit."""
        for span in self.spans:
            coverage.add(span)
        for log, floor in self.floors:
            coverage.settle(log, floor)

    def encode(self) -> bytes:
        """As the log holds it; only what there is to say."""
        value: dict[str, Any] = {"format": FORMAT, "writer": self.writer, "roll": self.roll, "at": self.at}
        if self.files:
            value |= {"rows": self.rows, "bytes": self.nbytes, "files": _files_to_json(self.files)}
        if self.spans:
            spans: dict[Log, list[Any]] = {}
            for span in self.spans:
                spans.setdefault(span.log, []).append(_span_to_json(span))
            value["spans"] = nest(spans.items())
        if self.letters:
            value["letters"] = _files_to_json(self.letters)
        if self.diverted:
            value["diverted"] = nest((part.log, [part.entries, part.rows]) for part in self.diverted)
        if self.floors:
            value["floors"] = nest((log, format_position(log.system, floor)) for log, floor in self.floors)
        if self.filtered:
            value["filtered"] = self.filtered
        if self.fence:
            value["fence"] = list(self.fence)
        if self.shared:
            value["shared"] = True
        return pack(value)

    @classmethod
    def decode(cls, data: bytes, name: str) -> "LogEntry":
        """Read what :meth:`encode` wrote. Raises DatasetDamagedError that names the file."""
        try:
            value = unpack(data)
            if value["format"] != FORMAT:
                raise ValueError(f"format {value['format']!r}, this version of fastwire knows {FORMAT}")
            return cls(
                writer=_writer(value["writer"]),
                roll=_count(value["roll"]),
                at=_text(value["at"]),
                files=tuple(_files_from_json(value.get("files", {}))),
                letters=tuple(_files_from_json(value.get("letters", {}))),
                spans=tuple(_spans_from_json(value.get("spans", {}))),
                diverted=tuple(
                    Diverted(log, _count(entries), _count(rows))
                    for log, (entries, rows) in unnest(value.get("diverted", {}))
                ),
                filtered=_count(value.get("filtered", 0)),
                floors=tuple(
                    (log, parse_position(log.system, _text(floor))) for log, floor in unnest(value.get("floors", {}))
                ),
                fence=tuple(_text(writer) for writer in value.get("fence", ())),
                shared=bool(value.get("shared", False)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise DatasetDamagedError(f"{name} is damaged: {exc}") from exc


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
