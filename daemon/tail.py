"""``fastwire-consume tail``: look at records without moving any cursor."""

import asyncio
import os
import sys
from typing import Any, Literal

import orjson

from fastwire.columns.chunk import Chunk
from fastwire.columns.text import LineFormatter
from fastwire.errors import ProtocolError
from fastwire.pulsar.message_id import MessageId
from fastwire.pulsar.schema import Schema, split_key_value, version_number
from fastwire.wire.pool import Pool

from .config import SourceConfig, Start
from .logs import configure
from .pulsar.deadletters import cell_bytes
from .pulsar.reader import Reader, ReadFrom
from .pulsar.schemas import Schemas
from .pulsar.settings import ClientSettings, client_fields, pattern_of
from .sources.registry import TopicReader

__all__ = ["TailFormat", "tail"]

TailFormat = Literal["pretty", "jsonl", "raw"]
MEMORY = 64 << 20
WIDE = 100  # letters of a value that stay in one line


async def tail(
    source: SourceConfig, *, count: int | None, until_end: bool, form: TailFormat, schemas: bool = False
) -> int:
    """Print records of ``source`` to standard output until ``count`` of them, the end, or Ctrl-C; return how many.

    ``until_end`` stops at what the topic held at the start; ``schemas`` shows those of the records on standard error,
    each before the first records that have it. Raises FastwireError when the broker says no, or nobody is there; a
    connection that is lost later is made again.
    """
    configure(level="error")  # what keeps us from beginning is told by whoever asked
    reader = _reader(source)
    printed = 0
    shown: set[tuple[str, bytes]] | None = set() if schemas else None
    try:
        await reader.open()
        configure(level="warning")
        async for chunk in reader.up_to_now() if until_end else reader:
            for letter in chunk.diverted:
                print(f"{letter.log.topic} {letter.position}: cannot be decoded: {letter.reason}", file=sys.stderr)
            lines = _lines(chunk)
            if count is not None:
                lines = lines[: count - printed]
            printed += len(lines)
            if shown is not None and reader.schemas is not None:
                await _show_schemas(reader.schemas, lines, shown)
            _print(_formed(lines, form))
            if count is not None and printed >= count:
                break
    except asyncio.CancelledError:
        pass  # Ctrl-C is how one stops looking
    finally:
        await reader.close()
    return printed


def _reader(source: SourceConfig) -> TopicReader:
    pool = Pool(MEMORY)
    if source.system == "kafka":
        from .sources.kafka import settings_from
        from .sources.kafka.reader import Reader as KafkaReader

        return KafkaReader(settings_from(source), pool)
    settings = ClientSettings(**client_fields(source))
    start = _start(source.start)
    return Reader(settings, pool, source.topics, start, pattern=pattern_of(source), patience_s=0.0)


def _start(start: Start) -> ReadFrom:
    if start.time is not None:
        return start.time
    if start.positions:
        return {name: MessageId(at.a, at.b) for name, at in start.positions.items()}
    return "earliest" if start.kind == "earliest" else "latest"


def _lines(chunk: Chunk) -> list[bytes]:
    """The rows as lines of JSON."""
    if not chunk.rows:
        return []
    formatter = LineFormatter(chunk)
    chunk.release()
    text = b""
    while piece := formatter.read():
        text += piece
    return text.splitlines(keepends=True)


def _formed(lines: list[bytes], form: TailFormat) -> list[bytes]:
    if form == "jsonl":
        return lines
    rows = [orjson.loads(line) for line in lines]
    return [_raw(row) for row in rows] if form == "raw" else [_pretty(row) for row in rows]


async def _show_schemas(schemas: Schemas, lines: list[bytes], shown: set[tuple[str, bytes]]) -> None:
    """Show the schemas of these rows that were not shown yet; rows without a version have none."""
    for line in lines:
        row = orjson.loads(line)
        topic, version = row["topic"], cell_bytes(row["schemaVersion"])
        if not version or (topic, version) in shown:
            continue
        shown.add((topic, version))
        schema = await schemas.get(topic, version)
        name = f"schema {version_number(version)} of {topic.removeprefix('persistent://')}"
        if schema is None:
            print(f"{name}: the broker does not know it", file=sys.stderr)
            continue
        print(f"{name}: {schema.kind} {_shown(schema.name)}".rstrip(), file=sys.stderr)
        for definition in _definitions(schema):
            print(f"    {definition}", file=sys.stderr)


def _definitions(schema: Schema) -> list[str]:
    """What a schema says, a line for each of its parts."""
    if schema.kind != "KEY_VALUE":
        return [_definition(schema.definition)] if schema.definition else []
    try:
        parts = split_key_value(schema.definition)
    except ProtocolError as exc:
        return [f"cannot be read: {exc}"]
    kinds = [_shown(schema.properties.get(f"{part}.schema.type", "BYTES")) for part in ("key", "value")]
    return [
        f"{part} {kind} {_definition(data)}".rstrip()
        for part, kind, data in zip(("key", "value"), kinds, parts, strict=True)
    ]


def _definition(data: bytes) -> str:
    try:
        return _shown(data.decode())
    except UnicodeDecodeError:
        return "0x" + data.hex()


def _raw(row: dict[str, Any]) -> bytes:
    return cell_bytes(row["value"]) + b"\n"


def _pretty(row: dict[str, Any]) -> bytes:
    place = str(row["offset"])
    if "ledger" in row:
        place = f"{row['ledger']}:{place}" + (f":{row['batchIndex']}" if row["batchIndex"] >= 0 else "")
    name = row["topic"].removeprefix("persistent://") + (f"-{row['partition']}" if row["partition"] >= 0 else "")
    head = f"{row['timestamp']}  {name} {place}"
    if row["key"] is not None:
        head += f"  key={_shown(row['key'])}"
    for header in row["headers"] or ():
        head += f"  {header['key']}={_shown(header['value'])}"
    if row.get("eventTime") is not None:
        head += f"  event={row['eventTime']}"
    value = "(tombstone)" if row["value"] is None else _decoded(row["value"])
    return f"{head}\n    {value}\n".encode()


def _decoded(cell: Any) -> str:
    """A value: JSON that does not fit into a line over several, everything else as it is."""
    text = _shown(cell)
    if len(text) <= WIDE or not isinstance(cell, str) or cell[:1] not in ("{", "["):
        return text
    try:
        lines = orjson.dumps(orjson.loads(cell), option=orjson.OPT_INDENT_2).decode().split("\n")
    except orjson.JSONDecodeError:
        return text
    return "\n    ".join(map(_shown, lines))


def _shown(cell: Any) -> str:
    """Text without what could drive a terminal; bytes that are no text as hex."""
    if isinstance(cell, dict):
        return "0x" + cell_bytes(cell).hex()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(cell))


def _print(lines: list[bytes]) -> None:
    sys.stdout.flush()
    data = memoryview(b"".join(lines))
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
