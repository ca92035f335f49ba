"""The command ``query``: SQL over topics."""

import os
import sys
import warnings
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..decoding import Maps, Message, Registry, SchemaFile, Values, decode_keys
from ..options import URL_HELP, BrokerOptions, argument, with_broker_options
from ..say import say
from ..topicnames import complete_topic

if TYPE_CHECKING:
    from ...prompt.query import TopicTable
    from ...prompt.read import Records

LEAST_BYTES = 16 << 20
SHOWN = 1000


Output = Literal["table", "csv", "jsonl", "parquet"]

_COPY = {"csv": "FORMAT csv, HEADER", "jsonl": "FORMAT json", "parquet": "FORMAT parquet, COMPRESSION zstd"}


@with_broker_options(reading=True)
def query(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP, show_default=False)],
    topics: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC[,TOPIC]",
            help="Topics of the query; a table has the name without tenant and namespace.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ],
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A SELECT of DuckDB; default: all rows of the first topic.")
    ] = "",
    start: Annotated[
        str,
        typer.Option("--from", help="First position, as in tail. Default: a bound of the time in WHERE, or earliest."),
    ] = "",
    form: Annotated[
        Output | None, typer.Option("--format", help="Form of the result. Default: table on a terminal, else csv.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the result; parquet needs one.", show_default=False)
    ] = None,
    decode: Annotated[
        Values | None, typer.Option("--decode", help="Columns are the fields of values of this format.")
    ] = None,
    schema_file: SchemaFile = None,
    message: Message = "",
    registry: Registry = "",
    maps: Maps = None,
    memory: Annotated[str, typer.Option(help="Memory of the query, above which it spills into files.")] = "1GiB",
    follow: Annotated[
        bool, typer.Option("--follow", help="Print rows as they come, by default those from now on, until Ctrl-C.")
    ] = False,
    *,
    broker: BrokerOptions,
) -> None:
    """Run SQL over topics, up to what they hold now. Moves no cursor and acknowledges nothing.

    Columns are those of the records: value, key, timestamp and others; with --decode the fields of the values, and
    those of the records with a _ before their name. Only columns that the query needs are kept, and a lower bound of
    the record's time in WHERE is where the reading begins.
    """
    from fastwire.systems import row_of

    from ...config.sql.rowwise import quoted
    from ...config.values.text import format_size, parse_size
    from ...prompt.background import Background
    from ...prompt.decoding import known_fields
    from ...prompt.query import (
        check_bytes,
        check_row_wise,
        copy,
        first_rows,
        opened,
        reading,
        table_name,
        tables_of,
        with_topics,
    )

    connection = broker.connection(url)
    keys = decode_keys(decode, schema_file, message, registry, maps, connection.system)
    named = {table_name(topic): topic for topic in topics.split(",")}
    if len(named) < len(topics.split(",")):
        raise typer.BadParameter("two topics have one table name", param_hint="TOPIC")
    form = form or ("table" if sys.stdout.isatty() and output is None and not follow else "csv")
    if follow and (form not in ("csv", "jsonl") or output is not None):
        raise typer.BadParameter("prints csv or jsonl to standard output", param_hint="--follow")
    if form == "parquet" and output is None:
        raise typer.BadParameter("parquet needs --output", param_hint="--format")
    if form == "table" and output is not None:
        raise typer.BadParameter("a table is for the terminal", param_hint="--format")
    sql = sql.strip().rstrip(";") or f"SELECT * FROM {quoted(next(iter(named)))}"
    with argument("--memory"):
        if (limit := parse_size(memory)) < LEAST_BYTES:
            raise ValueError(f"must be at least {format_size(LEAST_BYTES)}, which the engine needs itself")
    with argument("SQL"), opened(limit) as engine:
        tables = tables_of(engine, sql, named)
        check_bytes(engine, sql, ("key", "value") if keys is None else ("_key", "_value"))
        own, fields = row_of(connection.system).names, known_fields(connection, keys)
        if follow:
            check_row_wise(engine, sql)
            for each in tables:
                wanted = _wanted(each, own, keys, fields)
                _follow(engine, sql, form, each, wanted, url, named[each.name], start, broker.keys())
            return
        read = [
            (each, _records(url, named[each.name], each, own, keys, fields, start, broker.keys())) for each in tables
        ]
        ends = [records.close for _, records in read]
        known = [f"_{name}" for name in own] if keys else own
        with reading(read, [*fields, *known], named), _said_plainly():
            with_topics(engine, read)
            if form == "table":
                with Background(engine, ends, partial(first_rows, engine, sql, SHOWN + 1)) as asking:
                    _show(*asking.result())
            elif output is not None:
                with Background(engine, ends, partial(copy, engine, sql, _COPY[form], str(output))) as writing:
                    writing.result()
            else:
                _print(engine, ends, sql, _COPY[form])


def _records(
    url: str,
    topic: str,
    table: "TopicTable",
    own: Sequence[str],
    keys: dict[str, Any] | None,
    fields: Sequence[str],
    start: str,
    connection: dict[str, Any],
) -> "Records":
    """Return what the query needs of a topic, whose records have the columns ``own``, and their values the ``fields``.

    Raises ValueError for a start that its system does not have.
    """
    from ...prompt.read import read

    since = table.since.get("timestamp" if keys is None else "_timestamp")
    wanted = {"progress": sys.stderr.isatty(), **_wanted(table, own, keys, fields), **connection}
    if not start and since is not None:
        try:
            return read(url, topic, start=since, **wanted)
        except ValueError:
            pass  # it finds no record by its time
    return read(url, topic, start=start or "earliest", **wanted)


def _wanted(
    table: "TopicTable", own: Sequence[str], keys: dict[str, Any] | None, fields: Sequence[str]
) -> dict[str, Any]:
    """Return the columns that the query needs of a topic, and the table ``[decode]``.

    The records have the columns ``own``, their values the ``fields``; none if they are not known before.
    """
    from ...prompt.columns import asked_for

    prefix = "" if keys is None else "_"
    known = [f"{prefix}{name}" for name in own]
    mine = asked_for(known, table.columns)
    if keys is None:
        columns = known if table.all_columns else mine or known[-1:]
    elif table.all_columns or not fields:
        # There may be no fields: an engine takes no table without a column.
        columns = ["*", *(mine if mine or table.all_columns else known[-1:])]
    else:
        columns = [*asked_for(fields, table.columns), *mine] or known[-1:]
    return {"columns": columns, "decode": keys}


def _follow(
    engine: Any,
    sql: str,
    form: Output,
    table: "TopicTable",
    wanted: dict[str, Any],
    url: str,
    topic: str,
    start: str,
    connection: dict[str, Any],
) -> None:
    """Print the result for each batch of records as it comes, until Ctrl-C or until the output is closed."""
    from ...prompt.follow import follow
    from ...prompt.query import reading, rows_for

    options, lost = _COPY[form], 0
    batches = follow(url, topic, start=start or "latest", **wanted, **connection)
    try:
        for batch in batches:
            lost += len(batch.dead_letters)
            if not batch.num_rows:
                continue
            engine.register(table.name, rows_for(table, batch.records))
            with reading(()):
                if not _print(engine, (), sql, options):
                    break
            options = _COPY[form].replace("HEADER", "HEADER false")
    except KeyboardInterrupt:
        pass  # the end that was asked for
    finally:
        batches.close()
    if lost:
        say(f"{lost} records cannot be decoded and are left out", err=True)


@contextmanager
def _said_plainly() -> Iterator[None]:
    """Print what ``read`` warns of as lines for people."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: say(str(message).partition(". `")[0], err=True)
        yield


def _show(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the first rows of a result as a table."""
    from rich.console import Console
    from rich.table import Table

    from ...runtime.terminal import printable

    table = Table(*map(printable, names))
    for row in rows[:SHOWN]:
        table.add_row(*(printable(_text(cell)) for cell in row))
    console = Console()
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"the first {SHOWN:,} rows; --format csv has all")


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "backslashreplace")
    return str(cell)


def _print(engine: Any, ends: Iterable[Callable[[], object]], sql: str, options: str) -> bool:
    """Print a result in the form that ``options`` of COPY name; return False if the output is closed.

    ``ends`` end the readings of its topics. Standard output is not opened anew, which may empty it.
    """
    from ...prompt.background import Background
    from ...prompt.query import copy

    source, target = os.pipe()
    pieces = iter(partial(os.read, source, 1 << 16), b"")
    # An engine that opens a pipe without a reader would wait for one.
    discard = partial(start_new_thread, deque[bytes](maxlen=0).extend, (pieces,))

    def write() -> None:
        try:
            copy(engine, sql, options, f"/dev/fd/{target}")
        finally:
            os.close(target)

    try:
        with Background(engine, [*ends, discard], write) as writing:
            sys.stdout.buffer.writelines(pieces)
            sys.stdout.buffer.flush()
            writing.result()
    except BrokenPipeError:
        return False
    os.close(source)
    return True
