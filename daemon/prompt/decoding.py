"""Values as columns, at a prompt: the table ``[decode]`` as an argument, and the rows of a batch by it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Log

from ..config import Connection
from ..config.decode import INFER, DecodeConfig, parse_decode
from ..runtime.errors import LogRefusedError
from ..sinks.registry import decoder_of
from ..systems.registry import system_named

if TYPE_CHECKING:
    from ..sinks.valuedecoder import ValueDecoder

__all__ = ["Piece", "Undecoded", "decode_table", "decoded", "decoder_for", "first_inferred", "known_fields"]

Undecoded = tuple[pa.RecordBatch, Sequence[tuple[Log, int, int]]]
"""Records, and their logs: of each run the first row and the number of rows."""


class Piece(NamedTuple):
    """Rows of a batch, with the columns that are asked for, and the records among them that cannot be decoded."""

    rows: pa.RecordBatch
    dead_letters: Sequence[DeadLetter]


def decode_table(
    decode: str | Mapping[str, Any] | None, columns: Sequence[str] | None, system: str
) -> DecodeConfig | None:
    """Return the table ``[decode]`` of an argument, which is that table or its format; None for none.

    The columns of JSON without a table are inferred.

    Raises ConfigError; ValueError for ``columns`` that undecoded records do not have.
    """
    if decode is not None:
        keys = {"format": decode} if isinstance(decode, str) else dict(decode)
        if decode == "json":
            keys["schema"] = INFER
        return parse_decode(keys if columns is None else keys | {"columns": list(columns)})
    system_named(system).built(columns)
    return None


def decoder_for(connection: Connection, table: DecodeConfig | None) -> "ValueDecoder | None":
    """Return the decoder of ``table``. Raises ConfigError for files that cannot be used."""
    if table is None:
        return None
    system = connection.system
    topics = system_named(system).topic_schemas(connection) if table.by_brokers else None
    return decoder_of(table, system, topics=topics)


def known_fields(connection: Connection, decode: Mapping[str, Any] | None) -> Sequence[str]:
    """Return the columns that a table ``[decode]`` makes of values; none if these decide, or schemas that come later.

    Raises ConfigError.
    """
    table = None if decode is None else parse_decode(decode)
    if table is None or table.inferred or table.registry is not None:
        return ()
    decoder = decoder_for(connection, table)
    return () if decoder is None else tuple(decoder.columns)


def decoded(
    decoder: "ValueDecoder | None",
    batch: pa.RecordBatch,
    runs: Sequence[tuple[Log, int, int]],
    columns: Sequence[str] | None,
) -> Iterator[Piece]:
    """Yield the rows of ``batch``, whose logs are ``runs``; without a decoder its ``columns`` (None: all).

    Raises FastwireError for a value that does not fit if ``decode.on_error`` is "stop".
    """
    if decoder is None:
        yield Piece(batch if columns is None else batch.select(columns), ())
        return
    try:
        for rows in decoder.decode(batch, runs, _pause):
            yield Piece(rows.batch, rows.dead_letters)
    except LogRefusedError as exc:
        raise exc.with_traceback(None) from None


def first_inferred(decoder: "ValueDecoder", pieces: Iterator[Undecoded], limit: int | None) -> Iterator[Undecoded]:
    """Yield ``pieces`` after ``decoder`` has got the columns of the values in the first of them.

    Those are so many rows as pipelines look at, or ``limit`` if that is less. Raises DatasetMismatchError.
    """
    from ..sinks.valuedecoder import MOST_SAMPLE_BYTES, MOST_SAMPLES

    wanted = MOST_SAMPLES if limit is None else min(limit, MOST_SAMPLES)
    first: list[Undecoded] = []
    rows = nbytes = 0
    for piece in pieces:
        first.append(piece)
        rows += piece[0].num_rows
        nbytes += piece[0].column("value").nbytes
        if rows >= wanted or nbytes >= MOST_SAMPLE_BYTES:
            break
    values = chain.from_iterable(batch.column("value") for batch, _ in first)
    decoder.infer(value.as_py() for value in islice(values, wanted) if value.is_valid)
    yield from first
    yield from pieces


def _pause(why: str, seconds: float) -> None:
    time.sleep(seconds)
