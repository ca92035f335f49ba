"""``fastwire-consume tail``: look at records without moving any cursor."""

import asyncio
import os
import sys
from typing import Any, Literal

import orjson

from fastwire.columns.chunk import Chunk
from fastwire.columns.text import LineFormatter
from fastwire.wire.pool import Pool

from .config import SourceConfig
from .sources.pulsar import settings_from
from .sources.pulsar.reader import Reader

__all__ = ["TailFormat", "tail"]

TailFormat = Literal["pretty", "jsonl", "raw"]
MEMORY = 64 << 20


async def tail(source: SourceConfig, *, count: int | None, until_end: bool, form: TailFormat) -> int:
    """Print records of ``source`` to standard output until ``count`` of them, the end, or Ctrl-C; return how many.

    ``until_end`` stops at what the topic held at the start. Raises FastwireError when the broker or the connection
    fails.
    """
    reader = Reader(settings_from(source), Pool(MEMORY))
    printed = 0
    try:
        await reader.open()
        async for chunk in reader.chunks(until_end=until_end):
            for letter in chunk.diverted:
                print(f"{letter.log.topic} {letter.position}: cannot be decoded: {letter.reason}", file=sys.stderr)
            lines = _lines(chunk, form)
            if count is not None:
                lines = lines[: count - printed]
            printed += len(lines)
            _print(lines)
            if count is not None and printed >= count:
                break
    except asyncio.CancelledError:
        pass  # Ctrl-C is how one stops looking
    finally:
        await reader.close()
    return printed


def _lines(chunk: Chunk, form: TailFormat) -> list[bytes]:
    if not chunk.rows:
        return []
    formatter = LineFormatter(chunk)
    chunk.release()
    text = b""
    while piece := formatter.read():
        text += piece
    lines = text.splitlines(keepends=True)
    if form == "jsonl":
        return lines
    rows = [orjson.loads(line) for line in lines]
    return [_raw(row) for row in rows] if form == "raw" else [_pretty(row) for row in rows]


def _bytes(cell: Any) -> bytes:
    """A binary cell of a JSON line: text, or an object with base64, or null."""
    if cell is None:
        return b""
    if isinstance(cell, dict):
        import base64

        return base64.b64decode(cell["base64"])
    return str(cell).encode()


def _raw(row: dict[str, Any]) -> bytes:
    return _bytes(row["value"]) + b"\n"


def _pretty(row: dict[str, Any]) -> bytes:
    place = f"{row['ledger']}:{row['offset']}" + (f":{row['batchIndex']}" if row["batchIndex"] >= 0 else "")
    name = row["topic"].removeprefix("persistent://") + (f"-{row['partition']}" if row["partition"] >= 0 else "")
    head = f"{row['timestamp']}  {name} {place}"
    if row["key"] is not None:
        head += f"  key={_shown(row['key'])}"
    for header in row["headers"] or ():
        head += f"  {header['key']}={_shown(header['value'])}"
    value = "(tombstone)" if row["value"] is None else _shown(row["value"])
    return f"{head}\n    {value}\n".encode()


def _shown(cell: Any) -> str:
    """Text without what could drive a terminal; bytes that are no text as hex."""
    if isinstance(cell, dict):
        return "0x" + _bytes(cell).hex()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(cell))


def _print(lines: list[bytes]) -> None:
    sys.stdout.flush()
    data = memoryview(b"".join(lines))
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
