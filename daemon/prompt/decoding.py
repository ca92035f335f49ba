"""Values as columns, at a prompt: the table ``[decode]`` as an argument, and the rows of a batch by it."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from fastwire.columns.chunk import DeadLetter
from fastwire.errors import FastwireError

from ..config import Connection
from ..config.decode import INFER, DecodeConfig, parse_decode
from ..config.sql.arrowcolumns import types_of_records
from ..config.values.text import nearest
from ..runtime.errors import LogRefusedError
from ..sinks.recordrows import Runs
from ..sinks.registry import decoder_of
from ..systems.registry import system_named
from .columns import with_nulls

if TYPE_CHECKING:
    from ..sinks.valuedecoder import ValueDecoder

AWAY_S = 30.0  # between attempts to ask a registry that is away

Undecoded = tuple[pa.RecordBatch, Runs]
"""Records, and their logs: of each run the first row and the number of rows."""


class Piece(NamedTuple):
    """Rows of a batch, with the columns that are asked for, and the records among them that cannot be decoded."""

    rows: pa.RecordBatch
    dead_letters: Sequence[DeadLetter]


def decode_table(
    decode: str | Mapping[str, Any] | None, columns: Sequence[str] | None, system: str
) -> DecodeConfig | None:
    """Return the table ``[decode]`` of an argument, which is that table or its format; None for none.

    The columns of JSON without a table are inferred. Fields that come with the records are decoded all of them, of
    which the caller takes the ``columns``.

    Raises ConfigError; ValueError for ``columns`` that undecoded records do not have, for none, and for one twice.
    """
    if columns is not None and (isinstance(columns, str) or not isinstance(columns, Collection) or not len(columns)):
        raise ValueError(f"columns is a list of names, None for all columns, and not {columns!r}")
    wanted = None if columns is None else list(columns)
    if wanted is not None and (twice := next((name for name in wanted if wanted.count(name) > 1), None)):
        raise ValueError(f'columns has "{twice}" twice')
    if decode is not None:
        keys = {"format": decode} if isinstance(decode, str) else dict(decode)
        if decode == "json":
            keys["schema"] = INFER
        comes_later = keys.get("schema") == INFER or (keys.get("schema") is None and keys.get("registry") is not None)
        if wanted is not None and comes_later and "*" not in wanted:
            wanted = ["*", *(name for name in wanted if name in types_of_records(system, "_"))]
        return parse_decode(keys if wanted is None else keys | {"columns": wanted}, system)
    system_named(system).built(columns)
    return None


def decoder_for(
    connection: Connection, table: DecodeConfig | None, topics: Iterable[str] = ()
) -> "ValueDecoder | None":
    """Return the decoder of ``table``. Raises ConfigError for files that cannot be used.

    Without a schema it begins with the columns of the newest ones that a registry has of ``topics``, if it has some:
    others come with the records. Raises FastwireError if the registry is away.
    """
    if table is None:
        return None
    system = connection.system
    made = decoder_of(
        table, system, topics=system_named(system).topic_schemas(connection) if table.by_brokers else None
    )
    for topic in topics if table.registered else ():
        made.begin_if_known(topic)
    return made


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
    runs: Runs,
    columns: Sequence[str] | None,
) -> Iterator[Piece]:
    """Yield the rows of ``batch``, whose logs are ``runs``, with these ``columns`` (None: all).

    Those that are inferred are nulls without a type in records before the first one that has them.
    Raises FastwireError for a value that does not fit if ``decode.on_error`` is "stop".
    """
    if decoder is None:
        yield Piece(batch if columns is None else batch.select(columns), ())
        return
    try:
        for rows in decoder.decode(batch, runs, _patient()):
            if not rows.batch.num_rows and not rows.dead_letters:
                continue  # the schema of the first record has made columns
            chosen = chosen_columns(columns)
            yield Piece(rows.batch if chosen is None else with_nulls(rows.batch, chosen), rows.dead_letters)
    except LogRefusedError as exc:
        raise exc.with_traceback(None) from None


def chosen_columns(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Return those of ``columns`` that the caller takes of the decoded ones, None for all."""
    return None if columns is None or "*" in columns else columns


def check_chosen(decoder: "ValueDecoder", columns: Sequence[str] | None, has: str) -> None:
    """Raise FastwireError for one of ``columns`` that ``decoder`` does not have; ``has``: "the newest schema has"."""
    known = ("*", *decoder.columns)
    if strange := next((name for name in columns or () if name not in known), None):
        raise FastwireError(
            f'{has} no field "{strange}"{nearest(strange, known) or "."} '
            f"The columns are {', '.join(decoder.columns)}; a written schema may have fields that come later"
        )


def first_inferred(
    decoder: "ValueDecoder",
    pieces: Iterator[Undecoded],
    limit: int | None,
    columns: Sequence[str] | None,
    inferred: Callable[[], None],
) -> Iterator[Undecoded]:
    """Yield ``pieces`` after ``decoder`` has got the columns of the values in the first of them.

    ``inferred`` is called then. Those are so many rows as pipelines look at, or ``limit`` if that is less. Raises
    DatasetMismatchError, and FastwireError if none of them has one of the ``columns``.
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
    if rows:
        check_chosen(decoder, columns, f"the first {min(rows, wanted):,} records have")
    inferred()
    yield from first
    yield from pieces


def _patient() -> Callable[[str, float], None]:
    """Return a pause between attempts to ask a registry, which raises FastwireError after ``AWAY_S`` seconds."""
    waited = 0.0

    def pause(why: str, seconds: float) -> None:
        nonlocal waited
        waited += seconds
        if waited > AWAY_S:
            raise FastwireError(why)
        time.sleep(seconds)

    return pause
