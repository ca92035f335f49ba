"""Files without the rows that a condition means: counted first, and written again only where there are some."""

import zlib
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import zstandard

from ..commitlog.deadletterfile import ERASED, Outbox
from ..commitlog.ipcfile import opened_ipc_file
from ..commitlog.linefile import OPENED
from .condition import Condition


class Found(NamedTuple):
    """Rows that are meant, and whether the file has the columns that say so."""

    rows: int
    known: bool = True


Write = Callable[[bytes], object]


class Rewriter(NamedTuple):
    """``look`` counts the rows that are meant. ``copy`` writes the file without them, and returns the rows it keeps."""

    look: Callable[[BinaryIO, Condition], Found]
    copy: Callable[[BinaryIO, Condition, Write], int]


# --- Parquet. Threads of pyarrow must not hold a Python file, see log/ipcfile.py.


def _look_parquet(file: BinaryIO, condition: Condition) -> Found:
    parquet = pq.ParquetFile(file, pre_buffer=False)
    if condition.missing(parquet.schema_arrow):
        return Found(0, False)
    names = sorted({term.column[0] for term in condition.terms})
    return Found(sum(_count(condition.rows(batch)) for batch in parquet.iter_batches(columns=names, use_threads=False)))


def _copy_parquet(file: BinaryIO, condition: Condition, write: Write) -> int:
    parquet = pq.ParquetFile(file, pre_buffer=False)
    metadata = parquet.metadata
    columns = (
        [metadata.row_group(0).column(at) for at in range(metadata.num_columns)] if metadata.num_row_groups else []
    )
    outbox, kept = Outbox(), 0
    with pq.ParquetWriter(
        pa.PythonFile(outbox, mode="w"),
        parquet.schema_arrow,
        compression={each.path_in_schema: _codec(each.compression) for each in columns} or "none",
        use_dictionary=[each.path_in_schema for each in columns if each.has_dictionary_page],
        store_schema=b"ARROW:schema" in (metadata.metadata or {}),
    ) as writer:
        for number in range(metadata.num_row_groups):
            group = parquet.read_row_group(number, use_threads=False)
            # One batch: pieces of a table would become row groups of their own.
            table = group.filter(pc.invert(_rows(condition, group)))
            kept += table.num_rows
            if table.num_rows:
                writer.write_table(table, row_group_size=table.num_rows)
            _drain(outbox, write)
    _drain(outbox, write)
    return kept


def _codec(name: str) -> str:
    return "none" if name == "UNCOMPRESSED" else name.lower()


def _rows(condition: Condition, table: pa.Table) -> Any:
    return pa.chunked_array([condition.rows(batch) for batch in table.to_batches()], pa.bool_())


# --- Arrow


def _look_arrow(file: BinaryIO, condition: Condition) -> Found:
    with opened_ipc_file(file) as reader:
        if condition.missing(reader.schema):
            return Found(0, False)
        return Found(sum(_count(condition.rows(batch)) for batch in reader))


def _copy_arrow(file: BinaryIO, condition: Condition, write: Write) -> int:
    with opened_ipc_file(file) as reader:
        table = reader.read_all()
    kept = table.filter(pc.invert(_rows(condition, table))).unify_dictionaries()
    outbox = Outbox()
    # A file does not say how it was compressed where a reader could ask.
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(pa.PythonFile(outbox, mode="w"), kept.schema, options=options) as writer:
        writer.write_table(kept)
    _drain(outbox, write)
    return int(kept.num_rows)


# --- JSON Lines


def _look_lines(lines: Iterable[bytes], condition: Condition) -> Found:
    meant, known, any_line = 0, False, False
    for line in lines:
        row = orjson.loads(line)
        any_line = True
        known = known or condition.has(row)
        meant += condition.is_met(row)
    return Found(meant, known or not any_line)


def _copy_lines(lines: Iterable[bytes], condition: Condition, write: Write) -> int:
    kept = 0
    for line in lines:
        if not condition.is_met(orjson.loads(line)):
            write(line)
            kept += 1
    return kept


def _json(extension: str, packer: Callable[[], Any] | None = None) -> Rewriter:
    lines = OPENED[extension]

    def look(file: BinaryIO, condition: Condition) -> Found:
        return _look_lines(lines(file), condition)

    def copy(file: BinaryIO, condition: Condition, write: Write) -> int:
        if packer is None:
            return _copy_lines(lines(file), condition, write)
        packed = packer()
        kept = _copy_lines(lines(file), condition, lambda line: write(packed.compress(line)))
        write(packed.flush())
        return kept

    return Rewriter(look, copy)


# --- dead letters


def _look_dead_letters(file: BinaryIO, condition: Condition) -> Found:
    with opened_ipc_file(file) as reader:
        return Found(sum(_count(_meant(batch, condition)) for batch in reader))


def _copy_dead_letters(file: BinaryIO, condition: Condition, write: Write) -> int:
    outbox, rows = Outbox(), 0
    with opened_ipc_file(file) as reader, pa.ipc.new_file(pa.PythonFile(outbox, mode="w"), reader.schema) as writer:
        for batch in reader:
            meant = _meant(batch, condition)
            for name, empty in (("payload", b""), ("reason", ERASED)):
                at = batch.schema.get_field_index(name)
                column = pc.if_else(meant, pa.scalar(empty, batch.schema.field(at).type), batch.column(at))
                batch = batch.set_column(at, batch.schema.field(at), column)
            rows += pc.sum(batch.column("rows")).as_py() or 0
            writer.write_batch(batch)
            _drain(outbox, write)
    _drain(outbox, write)
    return rows


def _meant(batch: pa.RecordBatch, condition: Condition) -> Any:
    """Return the dead letters with one of the texts among their bytes: what could not be decoded has no columns."""
    found = [
        any(text in payload for text in condition.texts if text) for payload in batch.column("payload").to_pylist()
    ]
    return pa.array(found, pa.bool_())


# ---


def _count(rows: Any) -> int:
    return int(pc.sum(rows).as_py() or 0)


def _drain(outbox: Outbox, write: Write) -> None:
    for piece in outbox.take():
        write(piece)


def rewriter(extension: str) -> Rewriter | None:
    """Return what rewrites files with an extension; None for the format of a plug-in."""
    return {
        "parquet": Rewriter(_look_parquet, _copy_parquet),
        "arrow": Rewriter(_look_arrow, _copy_arrow),
        "jsonl": _json("jsonl"),
        "jsonl.gz": _json("jsonl.gz", lambda: zlib.compressobj(wbits=31)),
        "jsonl.zst": _json("jsonl.zst", lambda: zstandard.ZstdCompressor().compressobj()),
    }.get(extension)


rewriter_of_dead_letters = Rewriter(_look_dead_letters, _copy_dead_letters)
