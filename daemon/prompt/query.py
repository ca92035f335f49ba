"""SQL over topics: DuckDB runs a query whose tables are topics, of which only what it needs is read."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastwire.errors import FastwireError

from ..config.sql.rowwise import quoted, walk
from .columns import only_columns, twins, with_columns

if TYPE_CHECKING:
    import duckdb

    from .read import Records

_CONSTANT = frozenset(("CONSTANT", "FUNCTION", "CAST", "OPERATOR", "TYPE"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_READS_JSON = re.compile(
    r"->>?|from_json.*|json(_extract.*|_transform.*|_valid|_type|_keys|_structure|_contains|_exists|_value|_array_length)?"
)
# DuckDB's message of a thread of its own, within its message.
_WRAPPED = re.compile(r".*(\{\"exception_type\".*\})", re.DOTALL)
# Parts of DuckDB's messages that are about its own settings, or about a query in which it has wrapped that of the user.
_OF_ENGINE = re.compile(
    r"\s+(LINE \d+:|This limit was|Possible solutions:|Candidate functions:|Did you mean \"(pragma|duckdb|sqlite)_)"
)


class QueryError(FastwireError):
    """A sound query has failed: for a value of a record, or for lack of memory or disk space."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The part of a topic that a query needs."""

    name: str
    """The table in the query."""
    times: int
    """The number of times that the query reads it."""
    columns: frozenset[str]
    """The names of columns in the query, those of other tables and of fields of structs among them."""
    texts: frozenset[str]
    """The texts in the query, which may be fields of structs: ``customer['city']``."""
    all_columns: bool
    """True if it needs all columns of some table."""
    since: Mapping[str, datetime]
    """The least time of a column, of those that WHERE bounds from below: rows before it are not in the result."""


def table_name(topic: str) -> str:
    """Return the table of a topic: its name without tenant and namespace."""
    return topic.rpartition("/")[2]


@contextmanager
def opened(memory: int) -> Iterator["duckdb.DuckDBPyConnection"]:
    """Open an engine with ``memory`` bytes, above which it spills into a folder that ends with the block.

    Raises ValueError without the package, QueryError if it cannot begin, for lack of memory.
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ValueError("needs the package duckdb: pip install 'fastwire-daemon[sql]'") from None
    with TemporaryDirectory(prefix="fastwire-query-") as folder:
        settings: dict[str, Any] = {"memory_limit": f"{memory}B", "temp_directory": folder}
        try:
            made = duckdb.connect(":memory:", config=settings)
        except duckdb.OutOfMemoryException as exc:
            raise QueryError(f"the engine of the query cannot begin: {exc}") from None
        with made as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET python_enable_replacements = false")
            yield connection


def tables_of(connection: "duckdb.DuckDBPyConnection", sql: str, topics: Mapping[str, str]) -> list[TopicTable]:
    """Return what a query needs of ``topics``, which are known by their tables. Raises ValueError for no SELECT."""
    tree = _parsed(connection, sql)
    nodes = list(walk(tree))
    names = {name.lower(): name for name in topics}
    if hidden := [each["key"] for node in nodes for each in _ctes(node) if each["key"].lower() in names]:
        raise ValueError(f'WITH gives the name "{hidden[0]}" to another table than the topic')
    reads = [node["table_name"].lower() for node in nodes if node.get("type") == "BASE_TABLE"]
    columns, whole = _columns(nodes, frozenset(names))
    since = _since(connection, tree) if len(reads) == 1 else {}
    return [
        TopicTable(names[each], reads.count(each), columns, _texts(nodes), whole, since)
        for each in dict.fromkeys(reads)
        if each in names
    ]


def check_bytes(connection: "duckdb.DuckDBPyConnection", sql: str, columns: Collection[str]) -> None:
    """Raise ValueError if a function of JSON takes one of these ``columns`` of bytes: DuckDB makes nulls of all.

    A name that the query gives to something else counts no more: a subquery may make text of the column.
    """
    names = {name.lower() for name in columns}
    nodes = [*walk(_parsed(connection, sql))]
    names -= {name for node in nodes for name in _given(node, names)}
    for node in nodes:
        read: dict[str, Any] = {}
        if node.get("class") == "FUNCTION" and _READS_JSON.fullmatch(node["function_name"].lower()):
            first: dict[str, Any] = next(iter(node.get("arguments") or node.get("children") or ()), {})
            read = first.get("expression", first)
        elif node.get("class") == "CAST" and "JSON" in _words(node.get("type_expr") or node.get("cast_type")):
            read = node["child"]
        if read.get("class") == "COLUMN_REF" and (name := read["column_names"][-1]).lower() in names:
            raise ValueError(
                f"{name} is a column of bytes, which functions of JSON do not read: decode({name}) makes text of it, "
                "and --decode json columns of its fields"
            )


def check_row_wise(connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
    """Raise ValueError for a query whose result for some rows depends on others: it has no end while rows come."""
    node = _parsed(connection, sql)["statements"][0]["node"]
    table = node.get("from_table") or {}
    nodes = list(walk(node))
    aggregates = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    known = {name for (name,) in connection.execute(aggregates).fetchall()}
    called = {str(each.get("function_name")) for each in nodes if each.get("class") == "FUNCTION"}
    parts = {
        "several tables": node["type"] != "SELECT_NODE" or table.get("type") != "BASE_TABLE",
        "WITH": bool(_ctes(node)),
        "GROUP BY": bool(node.get("group_expressions")) or node.get("aggregate_handling") != "STANDARD_HANDLING",
        "DISTINCT, ORDER BY or LIMIT": bool(node.get("modifiers")),
        "a sample": bool(table.get("sample") or node.get("sample")),
        "a window": any(each.get("class") == "WINDOW" for each in nodes) or bool(node.get("qualify")),
        "a subquery": any(each.get("class") == "SUBQUERY" for each in nodes),
        **{f"{name}()": True for name in sorted(called & known)},
    }
    if found := next((part for part, there in parts.items() if there), None):
        raise ValueError(f"{found} needs all rows: a query that follows a topic looks at each row by itself")


def with_topics(connection: "duckdb.DuckDBPyConnection", tables: Iterable[tuple[TopicTable, "Records"]]) -> None:
    """Give the tables their records: one that is read once as a stream, any other one is stored first.

    Raises ValueError for a name that SQL takes for another one, FastwireError for a topic without columns.
    """
    for table, records in tables:
        reader = with_columns(records.to_reader(None if table.all_columns else table.columns), table.name)
        _check_told_apart(reader.schema, table)
        if table.times == 1:
            connection.register(table.name, reader)
        else:
            records.store(connection, quoted(table.name), reader)


def rows_for(table: TopicTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of ``batch`` that the query needs. Raises ValueError for a name that SQL takes for another."""
    rows = batch if table.all_columns else only_columns(batch, table.columns)
    _check_told_apart(rows.schema, table)
    return rows


def _check_told_apart(schema: "Iterable[pa.Field[Any]]", table: TopicTable) -> None:
    """Raise ValueError if a name in the query is that of several columns, or of fields side by side in a struct.

    SQL knows no case: DuckDB would take the first one for all of them.
    """
    asked = {name.lower() for name in table.columns | table.texts}
    for names in twins(schema):
        if names[0].lower() in asked:
            raise ValueError(
                f"{table.name} has {' and '.join(map(quoted, names))}, which differ by case only, and SQL takes one "
                "for the other: name one column alone, as it is written, without a *, and no such field of a struct"
            )


def _parsed(connection: "duckdb.DuckDBPyConnection", sql: str) -> dict[str, Any]:
    [(text,)] = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree: dict[str, Any] = json.loads(text)
    if tree["error"]:
        raise ValueError(tree["error_message"])
    if len(tree["statements"]) != 1:
        raise ValueError("there are several statements: write one SELECT")
    return tree


def _given(node: Mapping[str, Any], bytes_: Collection[str]) -> Iterator[str]:
    """Yield the names that a part of a query gives, in lower case; not those of columns ``bytes_``."""
    yield from (name.lower() for key in ("aliases", "column_name_alias") for name in node.get(key) or ())
    same = node.get("class") == "COLUMN_REF" and node["column_names"][-1].lower() in bytes_
    if (alias := node.get("alias")) and not same:
        yield alias.lower()


def _words(value: Any) -> frozenset[str]:
    """Return the texts in a part of a query, in upper case."""
    return frozenset(each.upper() for node in walk(value) for each in node.values() if isinstance(each, str))


def _ctes(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = node.get("cte_map")
    return found.get("map", []) if isinstance(found, dict) else []


def _columns(nodes: list[dict[str, Any]], tables: frozenset[str]) -> tuple[frozenset[str], bool]:
    """Return the names of columns, and whether all columns of a table are needed.

    They are where a column has no name, or another one than its own: by its place, and in a table of new names. PIVOT
    groups by all columns that it does not name.
    """
    names, whole = set[str](), False
    # A table by its name alone is a struct of all columns.
    tables |= {str(node["alias"]).lower() for node in nodes if node.get("type") == "BASE_TABLE"}
    for node in nodes:
        whole |= node.get("class") in ("STAR", "POSITIONAL_REFERENCE") or node.get("ref_type") == "NATURAL"
        whole |= node.get("type") == "PIVOT" or bool(node.get("column_name_alias"))
        if node.get("class") == "COLUMN_REF":
            names.update(node["column_names"])
            whole |= node["column_names"][-1].lower() in tables
        names.update(node.get("using_columns") or ())
    return frozenset(names), whole


def _texts(nodes: list[dict[str, Any]]) -> frozenset[str]:
    constants = [node for node in nodes if node.get("class") == "CONSTANT"]
    return frozenset(each for node in constants for part in walk(node) for each in part.values() if type(each) is str)


def _since(connection: "duckdb.DuckDBPyConnection", tree: dict[str, Any]) -> dict[str, datetime]:
    node = tree["statements"][0]["node"]
    table = node.get("from_table") or {}
    if node["type"] != "SELECT_NODE" or table.get("type") != "BASE_TABLE" or table.get("column_name_alias"):
        return {}
    owner = str(table["alias"] or table["table_name"]).lower()
    found: dict[str, datetime] = {}
    for (*within, column), bound in _lower_bounds(node.get("where_clause")):
        if within and [name.lower() for name in within] != [owner]:
            continue  # a field of a struct
        moment = _moment(connection, bound)
        if moment is not None:
            found[column] = max(moment, found.get(column, moment))
    return found


def _lower_bounds(where: Any) -> Iterator[tuple[list[str], Any]]:
    """Yield the names of each column that a condition that all rows must fulfil bounds from below, with the bound."""
    if not where:
        return
    kind = where["type"]
    if kind == "CONJUNCTION_AND":
        for child in where["children"]:
            yield from _lower_bounds(child)
    elif kind in ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO", "COMPARE_EQUAL"):
        yield from _bound(where["left"], where["right"])
    elif kind in ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO"):
        yield from _bound(where["right"], where["left"])
    elif kind == "COMPARE_BETWEEN":
        yield from _bound(where["input"], where["lower"])


def _bound(column: Any, bound: Any) -> Iterator[tuple[list[str], Any]]:
    if column["class"] == "COLUMN_REF" and all(node.get("class", "CONSTANT") in _CONSTANT for node in walk(bound)):
        yield column["column_names"], bound


def _moment(connection: "duckdb.DuckDBPyConnection", expression: Any) -> datetime | None:
    """Return the time that an expression without columns is, None if it is none."""
    import duckdb

    tree = _parsed(connection, "SELECT 1")
    tree["statements"][0]["node"]["select_list"] = [expression]
    try:
        [(text,)] = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
        [(since_us,)] = connection.execute(f"SELECT epoch_us(CAST(({text}) AS TIMESTAMPTZ))").fetchall()
        return None if since_us is None else _EPOCH + timedelta(microseconds=since_us)
    except (duckdb.Error, OverflowError):
        return None  # the query itself says what is wrong


@contextmanager
def reading(
    tables: Collection[tuple[TopicTable, "Records"]], known: Sequence[str] = (), names: Iterable[str] = ()
) -> Iterator[None]:
    """Raise the error of a topic for the one that DuckDB makes of it.

    The tables have the columns ``known``, and those of their first records. ``names`` are all that there are.
    Raises ValueError for a query that is wrong by itself, QueryError for one that fails for a record, memory or disk.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as exc:
        if failure := next((records.failure for _, records in tables if records.failure), None):
            raise failure from None
        wrong = isinstance(exc, (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException))
        told = str(exc)
        if wrapped := _WRAPPED.fullmatch(told):
            told = json.loads(wrapped[1])["exception_message"]
        text = " ".join(_OF_ENGINE.split(told, maxsplit=1)[0].split())
        if "Table with name" in text:
            text = f"{text} The topics are the tables {', '.join(names)}"
        if "max_temp_directory_size" in told:
            text = f"{text.rstrip('.')}. The folder for temporary files is full: TMPDIR names another one"
        elif isinstance(exc, duckdb.OutOfMemoryException):
            text = f"{text}. --memory gives it more"
        if "Referenced column" in text:  # DuckDB has the columns only for which the query asks
            fields = [[name for name in records.names if name not in known] for _, records in tables]
            having = [
                f"{each.name} has {', '.join((*of, *known))}" for (each, _), of in zip(tables, fields, strict=True)
            ]
            text = ". ".join([text.partition("!")[0], *having])
        raise (ValueError if wrong else QueryError)(text) from None


def first_rows(
    connection: "duckdb.DuckDBPyConnection", sql: str, count: int
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns, and at most ``count`` rows."""
    result = connection.execute(sql)
    return [str(name) for name, *_ in result.description or ()], result.fetchmany(count)


def copy(connection: "duckdb.DuckDBPyConnection", sql: str, options: str, target: str) -> None:
    """Write a result to a file, in the form that ``options`` of COPY name; bytes that are text become text.

    Parquet keeps bytes.
    """
    file = "'" + target.replace("'", "''") + "'"
    text = sql if "parquet" in options else _in_text(connection, sql)
    connection.execute(f"COPY ({text}) TO {file} ({options})").fetchall()


def _in_text(connection: "duckdb.DuckDBPyConnection", sql: str) -> str:
    """Return the query with bytes that are text as text; other bytes are escaped."""
    described = connection.execute(f"DESCRIBE {sql}").fetchall()
    # Several columns of a result may have one name, as in a join: inside they are told apart by their places.
    places = [f"c{place}" for place, _ in enumerate(described)]
    cells = [
        f"coalesce(try(decode({place})), CAST({place} AS VARCHAR))" if kind == "BLOB" else place
        for place, (_, kind, *_) in zip(places, described, strict=True)
    ]
    named = (f"{cell} AS {quoted(name)}" for cell, (name, *_) in zip(cells, described, strict=True))
    return f"SELECT {', '.join(named)} FROM ({sql}) AS result({', '.join(places)})"
