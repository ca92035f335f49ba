"""``fastwire-consume tail``: prints records without moving any cursor."""

import asyncio
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal

import orjson

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.columns.text import LineFormatter
from fastwire.position import positions_of

from ...config import Connection, Start, TopicChoice
from ...config.decode import DELETED
from ...runtime.logs import configure
from ...runtime.terminal import printable, printable_json
from ...systems.base import SchemaTexts
from ...systems.producing.cell import cell_bytes
from ...systems.registry import reading
from ..printed import place_of
from ..retry import open_when_up
from ..say import say

if TYPE_CHECKING:
    from ...sinks.valuedecoder import ValueDecoder

TailFormat = Literal["pretty", "jsonl", "raw"]
WIDE = 100  # characters; a longer JSON value is printed on several lines


async def tail(
    connection: Connection,
    topics: TopicChoice,
    start: Start,
    *,
    count: int | None,
    until_end: bool,
    form: TailFormat,
    schemas: bool = False,
    decoder: "ValueDecoder | None" = None,
) -> int:
    """Print the records of ``topics`` from ``start`` on until ``count`` records, the end, or Ctrl-C.

    Returns the number of records. ``until_end`` stops at the end that the topics had at the start; ``schemas`` prints
    each schema to standard error, before the first records that have it. With a ``decoder`` values are printed as their
    fields, and those that do not match go to standard error. A broker that is starting is waited for, and a lost
    connection is made again. Raises FastwireError when the broker refuses the connection or the topics, or
    cannot be reached.
    """
    configure(level="error")  # the caller reports an error at the start
    printed = 0
    shown: set[tuple[str, bytes]] | None = set() if schemas else None
    try:
        async with AsyncExitStack() as stack:
            reader = await open_when_up(lambda: stack.enter_async_context(reading(connection, topics, start)))
            configure(level="warning")
            async for chunk in reader.up_to_now() if until_end else reader:
                for letter in chunk.dead_letters:
                    _complain(letter)
                if chunk.unfit_times:
                    print(
                        f"{chunk.unfit_times} times do not fit into 64 bits of microseconds: shown is the nearest time",
                        file=sys.stderr,
                    )
                if decoder is None:
                    lines = _lines(chunk)
                else:  # on a thread, because a registry is waited for
                    lines = await asyncio.to_thread(_decoded_lines, chunk, decoder, form)
                if count is not None:
                    lines = lines[: count - printed]
                printed += len(lines)
                if shown is not None and reader.schemas is not None:
                    await _show_schemas(reader.schemas, lines, shown)
                _print(_formed(lines, form, connection.system), form)
                if count is not None and printed >= count:
                    break
    except asyncio.CancelledError:
        pass  # Ctrl-C is the usual end
    return printed


def _lines(chunk: Chunk) -> list[bytes]:
    """Return the rows as lines of JSON, and release ``chunk``."""
    if not chunk.rows:
        return []
    formatter = LineFormatter(chunk)
    chunk.release()
    pieces: list[bytes] = []
    formatter.write(pieces.append)
    return b"".join(pieces).splitlines(keepends=True)


def _decoded_lines(chunk: Chunk, decoder: "ValueDecoder", form: TailFormat) -> list[bytes]:
    """Return the rows as lines of JSON with the fields of their values; other forms have them as text.

    The value of a tombstone is null.
    """
    import pyarrow as pa

    if not chunk.rows:
        return []
    batch = pa.record_batch(chunk)
    runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()]
    lines = _lines(chunk)
    printed = []
    for rows in decoder.decode(batch, runs, _wait):
        for letter in rows.dead_letters:
            _complain(letter)
        deleted = rows.batch.column(DELETED).to_pylist()
        fields = rows.batch.drop_columns([DELETED])
        values: list[bytes] = []
        LineFormatter(fields, base64=fields.schema.names).write(values.append)
        for number, gone, value in zip(rows.numbers, deleted, b"".join(values).splitlines(), strict=True):
            row = orjson.loads(lines[number])
            if not gone:
                row["value"] = orjson.Fragment(value) if form == "jsonl" else value.decode()
            printed.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    return printed


def _wait(why: str, seconds: float) -> None:
    say(why, err=True)
    time.sleep(seconds)


def _complain(letter: DeadLetter) -> None:
    place = positions_of(letter.log.system).format(letter.position)
    say(f"{letter.log.topic} {place}: cannot be decoded: {letter.reason}", err=True)


def _formed(lines: list[bytes], form: TailFormat, system: str) -> list[bytes]:
    if form == "jsonl":
        return lines
    rows = [orjson.loads(line) for line in lines]
    return [_raw(row) for row in rows] if form == "raw" else [_pretty(row, system) for row in rows]


async def _show_schemas(schemas: SchemaTexts, lines: list[bytes], shown: set[tuple[str, bytes]]) -> None:
    """Print the schemas of these rows that were not printed yet; rows without a version have no schema."""
    for line in lines:
        version = schemas.version_of(orjson.loads(line))
        if version is None or version in shown:
            continue
        shown.add(version)
        for text in await schemas.describe(*version):
            say(text, err=True)


def _raw(row: dict[str, Any]) -> bytes:
    return cell_bytes(row["value"]) + b"\n"


def _pretty(row: dict[str, Any], system: str) -> bytes:
    name = row["topic"].removeprefix("persistent://") + (f"-{row['partition']}" if row["partition"] >= 0 else "")
    head = f"{row['timestamp'] or '(no time)'}  {printable(name)} {place_of(row, system)}"
    if row["key"] is not None:
        head += f"  key={_shown(row['key'])}"
    for header in row["headers"] or ():
        head += f"  {printable(header['key'])}={_shown(header['value'])}"
    if row.get("eventTime") is not None:
        head += f"  event={row['eventTime']}"
    value = "(tombstone)" if row["value"] is None else _decoded(row["value"])
    return f"{head}\n    {value}\n".encode()


def _decoded(cell: Any) -> str:
    """Return a value for display; JSON that does not fit on one line is indented."""
    text = _shown(cell)
    if len(text) <= WIDE or not isinstance(cell, str) or cell[:1] not in ("{", "["):
        return text
    try:
        lines = orjson.dumps(orjson.loads(cell), option=orjson.OPT_INDENT_2).decode().split("\n")
    except orjson.JSONDecodeError:
        return text
    return "\n    ".join(map(_shown, lines))


def _shown(cell: Any) -> str:
    """Return a cell as text with control characters escaped; bytes that are not text become hex."""
    if isinstance(cell, dict):
        return "0x" + cell_bytes(cell).hex()
    return printable(str(cell))


def _print(lines: list[bytes], form: TailFormat) -> None:
    sys.stdout.flush()
    data = memoryview(b"".join(map(printable_json, lines) if form == "jsonl" and sys.stdout.isatty() else lines))
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
