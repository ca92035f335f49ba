"""The input of ``produce``: plain lines, and JSON lines with keys and properties."""

import asyncio
import base64
import binascii
import os
import threading
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import orjson

from fastwire.errors import FastwireError

from ...systems.writer import Put

READ_BYTES = 256 << 10
BLOCKS = 4  # the number of blocks that are read ahead

_FIELDS = ("key", "value", "properties", "event_time", "ordering_key", "partition")


class InputError(FastwireError):
    """A line is not a record; the text gives its number and the reason."""


def parse_line(line: bytes) -> Put:
    """Return a record whose value is the whole line."""
    return Put(line)


def parse_json(line: bytes) -> Put:
    """Read ``{"key", "value", "properties", "event_time", "ordering_key", "partition"}``, each but ``value`` optional.

    ``key``, ``value`` and ``ordering_key`` are text, ``{"base64": "…"}`` or null; a null value is a tombstone.
    ``event_time`` is milliseconds since 1970 or an RFC 3339 time. Raises ValueError.
    """
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc}") from None
    if not isinstance(row, dict):
        raise ValueError("not an object")
    for name in row:
        if name not in _FIELDS:
            raise ValueError(f'"{name}" is not one of {", ".join(_FIELDS)}')
    if "value" not in row:
        raise ValueError('"value" is missing; use null for a tombstone')
    partition = row.get("partition")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool) or partition < 0):
        raise ValueError('"partition" must be a whole number from 0')
    key = row.get("key")
    return Put(
        value=_bytes("value", row["value"]),
        key=key if isinstance(key, str) else _bytes("key", key),
        properties=_properties(row.get("properties")),
        event_time=_event_time(row.get("event_time")),
        ordering_key=_bytes("ordering_key", row.get("ordering_key")),
        partition=partition,
    )


def _bytes(name: str, cell: Any) -> bytes | None:
    if cell is None:
        return None
    if isinstance(cell, str):
        return cell.encode()
    if isinstance(cell, dict) and list(cell) == ["base64"] and isinstance(cell["base64"], str):
        try:
            return base64.b64decode(cell["base64"], validate=True)
        except binascii.Error as exc:
            raise ValueError(f'"{name}" is not base64: {exc}') from None
    raise ValueError(f'"{name}" must be text, {{"base64": "…"}} or null')


def _properties(cell: Any) -> tuple[tuple[str, str], ...]:
    if cell is None:
        return ()
    if not isinstance(cell, dict) or not all(isinstance(value, str) for value in cell.values()):
        raise ValueError('"properties" must be an object with text values')
    return tuple(cell.items())


def _event_time(cell: Any) -> int | None:
    if cell is None:
        return None
    if isinstance(cell, int) and not isinstance(cell, bool) and 0 <= cell < 1 << 63:
        return cell
    try:
        when = datetime.fromisoformat(cell)
    except (TypeError, ValueError):
        when = None
    if when is None or when.tzinfo is None or when.timestamp() < 0:
        raise ValueError('"event_time" must be milliseconds since 1970, or a time such as "2026-01-31T12:00:00Z"')
    return round(when.timestamp() * 1000)


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a file descriptor, without their line ends, in lists as large as one read returns.

    A thread reads them, because only a thread can read any kind of file without blocking the event loop. A thread that
    still waits for a terminal at the end is abandoned. Raises OSError.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue()
    room = threading.Semaphore(BLOCKS)
    wanted = threading.Event()
    wanted.set()

    def hand_over(what: list[bytes] | OSError | None) -> None:
        room.acquire()
        if wanted.is_set():
            loop.call_soon_threadsafe(queue.put_nowait, what)

    def read() -> None:
        rest = b""
        try:
            while wanted.is_set() and (block := os.read(descriptor, READ_BYTES)):
                *lines, last = block.split(b"\n")
                if lines:
                    lines[0] = rest + lines[0]
                    rest = b""
                    hand_over(lines)
                rest += last
            if rest:
                hand_over([rest])
            hand_over(None)
        except OSError as exc:
            hand_over(exc)
        except RuntimeError:
            pass  # the event loop is closed, so no caller waits for lines

    threading.Thread(target=read, name="input", daemon=True).start()
    try:
        while (found := await queue.get()) is not None:
            if isinstance(found, OSError):
                raise found
            yield found
            room.release()
    finally:
        wanted.clear()
        room.release(BLOCKS)
