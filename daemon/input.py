"""Records that people type, pipe in or keep in files: plain lines, and JSON lines with keys and properties."""

import asyncio
import base64
import binascii
import os
import threading
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from fastwire.errors import FastwireError

__all__ = ["InputError", "Put", "lines_of", "parse_json", "parse_line"]

READ_BYTES = 256 << 10
BLOCKS = 4  # read ahead of those who take them

_FIELDS = ("key", "value", "properties", "event_time", "ordering_key", "partition")


class InputError(FastwireError):
    """A line is no record; the text says which one and why."""


class Put(NamedTuple):
    """A record, and the partition that was asked for; a key of bytes was given as base64, any other one is text."""

    value: bytes | None
    key: str | bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    event_time: int = 0
    ordering_key: bytes | None = None
    partition: int | None = None


def parse_line(line: bytes) -> Put:
    """A whole line is a value."""
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
            raise ValueError(f'"{name}" is none of {", ".join(_FIELDS)}')
    if "value" not in row:
        raise ValueError('"value" is missing; null makes a tombstone')
    partition = row.get("partition")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool) or partition < 0):
        raise ValueError('"partition" is a number from 0 on')
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
            raise ValueError(f'"{name}" is no base64: {exc}') from None
    raise ValueError(f'"{name}" is text, {{"base64": "…"}} or null')


def _properties(cell: Any) -> tuple[tuple[str, str], ...]:
    if cell is None:
        return ()
    if not isinstance(cell, dict) or not all(isinstance(value, str) for value in cell.values()):
        raise ValueError('"properties" is an object of texts')
    return tuple(cell.items())


def _event_time(cell: Any) -> int:
    if cell is None:
        return 0
    if isinstance(cell, int) and not isinstance(cell, bool) and 0 <= cell < 1 << 63:
        return cell
    try:
        when = datetime.fromisoformat(cell)
    except (TypeError, ValueError):
        when = None
    if when is None or when.tzinfo is None or when.timestamp() < 0:
        raise ValueError('"event_time" is milliseconds since 1970, or a time such as "2026-01-31T12:00:00Z"')
    return round(when.timestamp() * 1000)


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield lines, without their ends, as many at a time as one read brings.

    They are read on a thread, for only so any file can be read without holding the event loop up; a thread that waits
    for a terminal is left behind at the end. Raises OSError.
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
            pass  # the loop is gone, and with it whoever wanted lines

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
