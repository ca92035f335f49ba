"""``transform``: a SELECT over a batch of records, decoded or as they are, read with DuckDB's own parser and refused
unless it is row-wise.

Each row must depend on one row of the batch and on nothing else. Where a batch begins is chance, and a record that is
delivered again after a crash must become the same row.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ..values.text import nearest
from .arrowcolumns import arrow_schema, check_result, names_of_records, types_of_records

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from fastwire.decode.evolution import Column

    from .process import SqlProcess

TABLE = "batch"
"""The only table of a query."""
ROW = "_fastwire_row"
"""The column of a batch, and the last one of a result, with the number of the row."""
TIME = "_fastwire_timestamp"
"""The column of a result with the timestamp of the record, before ``ROW``, if the query carries it."""

# An expression over a row streams, so this is much.
_MEMORY = "32MiB"

_NESTED = frozenset(
    ("BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
     "OPERATOR", "TYPE")
)  # fmt: skip
_REFUSED = {
    "WINDOW": "has a window function: a row would depend on others",
    "SUBQUERY": "has a subquery: a row would depend on others",
    "PARAMETER": "has a parameter: write the value",
    "POSITIONAL_REFERENCE": "has a column by its number: write its name",
    "STAR": "has * or COLUMNS(…) within an expression: name the columns",
}
_MODIFIERS = {
    "ORDER_MODIFIER": "has ORDER BY: rows land in the order of their log",
    "LIMIT_MODIFIER": "has LIMIT: a row would depend on others",
    "LIMIT_PERCENT_MODIFIER": "has LIMIT: a row would depend on others",
    "DISTINCT_MODIFIER": "has DISTINCT: a row would depend on others",
}
_TABLES = {
    "JOIN": f"joins tables: the only table is {TABLE}",
    "SUBQUERY": f"reads a subquery: the only table is {TABLE}",
    "EMPTY": f"reads no table: add FROM {TABLE}",
}
_CLAUSES = {
    "group_expressions": "has GROUP BY: a row would depend on others",
    "group_sets": "has GROUP BY: a row would depend on others",
    "having": "has HAVING: a row would depend on others",
    "qualify": "has QUALIFY: a row would depend on others",
    "sample": "has a sample: rows that are read again must become the same rows",
}
_KINDS = {
    "aggregate": "aggregates: a row would depend on others",
    "window": "is a window function: a row would depend on others",
    "table": "makes rows up",
    "table_macro": "makes rows up",
}
# With one argument it is counted from today.
_OF_TODAY = ("age",)


@dataclass(frozen=True, slots=True)
class Query:
    """A row-wise query over the columns of a batch."""

    sql: str
    """Returns the columns of the query, then ``TIME`` if it is carried, then ``ROW``."""
    failing: str
    """Returns the ``ROW`` of each row for which an expression of the query fails; "" if DuckDB cannot tell."""
    own: tuple[str, ...]
    """The columns of the records that it needs, beside the columns that * stands for."""
    carries_time: bool = False
    constants: str = ""
    """Returns what DuckDB computes without a row; "" for nothing."""


@dataclass(frozen=True, slots=True)
class _Function:
    kinds: frozenset[str]
    same: bool  # the same arguments give the same result, in one time zone
    macros: tuple[tuple[Sequence[str], str], ...]  # parameters and definitions


def engine() -> "duckdb.DuckDBPyConnection":
    """Return a DuckDB of its own that reaches no file, network or extension, and runs on the caller's thread.

    Raises ValueError without the package.
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ValueError("needs the package duckdb: pip install 'fastwire-daemon[sql]'") from None
    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "threads": "1",
        "memory_limit": _MEMORY,
    }
    made = duckdb.connect(":memory:", config=settings)
    for setting in ("TimeZone = 'UTC'", "python_enable_replacements = false", "lock_configuration = true"):
        made.execute(f"SET {setting}")
    return made


@cache
def _parser() -> "duckdb.DuckDBPyConnection":
    """Return the engine that parses; ``read_query`` closes it, because it takes some MiB."""
    return engine()


@cache
def _functions() -> Mapping[str, _Function]:
    """Return the functions of DuckDB by name."""
    found = (
        _parser()
        .cursor()
        .execute(
            "SELECT lower(function_name), list(DISTINCT function_type), "
            "coalesce(bool_or(stability = 'CONSISTENT' OR function_name = 'error'), true), "
            "list((parameters, macro_definition)) FILTER (macro_definition IS NOT NULL) "
            "FROM duckdb_functions() GROUP BY 1"
        )
    )
    return {
        name: _Function(frozenset(kinds), same, tuple(macros or ())) for name, kinds, same, macros in found.fetchall()
    }


def first_line(exc: Exception) -> str:
    """Return the first line of a message of DuckDB."""
    return str(exc).strip().partition("\n")[0]


def read_query(
    text: str, fields: Sequence[str], own: Sequence[str], *, carries_time: bool = False, prefix: str = "_"
) -> Query:
    """Read a query over the columns ``fields``, which * stands for, and columns of the records, ``own``.

    Their names begin with ``prefix``.

    Raises ValueError with the reason, for the author of the configuration.
    """
    try:
        return _read(text, fields, own, f"{prefix}timestamp" if carries_time else "")
    finally:
        _parser().close()
        _parser.cache_clear()


def _read(text: str, fields: Sequence[str], own: Sequence[str], carried: str) -> Query:
    tree = _parsed(text)
    if len(tree) != 1:
        raise ValueError(f"has {len(tree)} statements: it must be one SELECT")
    if tree[0]["named_param_map"]:
        raise ValueError(_REFUSED["PARAMETER"])
    node = tree[0]["node"]
    _check_frame(node)
    scope = (node["from_table"]["alias"] or TABLE).lower()
    rule = _Rule((*fields, *own), scope)
    expressions = _expressions(node)
    for expression in (*expressions, *([] if node["where_clause"] is None else [node["where_clause"]])):
        rule.check(expression)
    parts = [part for part in walk([expressions, node["where_clause"]]) if part.get("class") == "COLUMN_REF"]
    used = {rule.column(part) for part in parts}
    constants = [part for part in walk([expressions, node["where_clause"]]) if _is_constant(part)]
    needed = tuple(name for name in own if name not in fields and name.lower() in used)
    _check_names(node["select_list"], own)
    hidden = [*needed, *([carried] if carried and carried not in (*needed, *fields) else []), ROW]
    failing = _failing(node, expressions)
    for part in node["select_list"]:
        if part["class"] == "STAR" and part["relation_name"].lower() in ("", scope):
            part["exclude_list"] = [*part["exclude_list"], *hidden]
    hidden_columns = [*([f"{carried} AS {TIME}"] if carried else []), ROW]
    node["select_list"] += _node(f"SELECT {', '.join(hidden_columns)}")["select_list"]
    own_used = tuple(name for name in hidden if name != ROW)
    alone = _node(f"SELECT 1 FROM {TABLE}") | {"select_list": constants}
    return Query(_text(node), _text(failing), own_used, bool(carried), _text(alone) if constants else "")


def _is_constant(part: Mapping[str, Any]) -> bool:
    """Return True for a call of a function without a column."""
    return part.get("class") == "FUNCTION" and all(each.get("class") != "COLUMN_REF" for each in walk(part))


def _parsed(text: str) -> list[dict[str, Any]]:
    """Return the statements of a query as DuckDB parses them."""
    (answer,) = _parser().cursor().execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchone() or ("",)
    tree = json.loads(answer)
    if tree["error"]:
        raise ValueError(f"is not a SELECT that DuckDB reads: {tree['error_message']}")
    statements: list[dict[str, Any]] = tree["statements"]
    return statements


def _node(text: str) -> dict[str, Any]:
    node: dict[str, Any] = _parsed(text)[0]["node"]
    return node


def _text(node: Mapping[str, Any]) -> str:
    tree = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    (text,) = _parser().cursor().execute("SELECT json_deserialize_sql($1::JSON)", [json.dumps(tree)]).fetchone() or (
        "",
    )
    return str(text)


def _check_frame(node: Mapping[str, Any]) -> None:
    """Refuse all of a query that is not SELECT … FROM batch WHERE …."""
    if node["type"] != "SELECT_NODE":
        raise ValueError("combines several SELECT: it must be a single one")
    if node["cte_map"]["map"]:
        raise ValueError(f"has WITH: the only table is {TABLE}")
    for modifier in node["modifiers"]:
        raise ValueError(_MODIFIERS.get(modifier["type"], f"has {modifier['type']}"))
    table = node["from_table"]
    if table["type"] == "TABLE_FUNCTION":
        raise ValueError(f'reads the table function "{table["function"]["function_name"]}": the only table is {TABLE}')
    if table["type"] != "BASE_TABLE":
        raise ValueError(_TABLES.get(table["type"], f"reads other rows than those of {TABLE}"))
    if [part.lower() for part in table["qualified_name"]["path"]] != [TABLE]:
        raise ValueError(f'reads "{".".join(table["qualified_name"]["path"])}": the only table is {TABLE}')
    if table["column_name_alias"] or table["at_clause"]:
        raise ValueError(f"reads {TABLE} with other columns or at another time: write FROM {TABLE}")
    for clause, message in _CLAUSES.items():
        if node[clause] or table.get(clause):
            raise ValueError(message)
    if node["aggregate_handling"] != "STANDARD_HANDLING":
        raise ValueError(_CLAUSES["group_expressions"])


def walk(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree."""
    if isinstance(part, dict):
        yield part
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from walk(each)


def _star_parts(star: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the expressions of a * at the top of the list: those of its REPLACE."""
    if star["columns"] or star["expr"]:
        raise ValueError(_REFUSED["STAR"])
    return [each["value"] for each in star["replace_list"]]


class _Rule:
    """Refuses an expression that is not a function of one row with the columns ``names``.

    ``scope`` is the name of the table, and ``macros`` are those whose definitions are being looked into.
    """

    def __init__(self, names: Iterable[str], scope: str, macros: frozenset[str] = frozenset()) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._scope = scope
        self._macros = macros

    def check(self, expression: Mapping[str, Any]) -> None:
        """Raise ValueError for a part of ``expression`` that is refused."""
        parameters = {
            name.lower()
            for part in walk(expression)
            if part.get("class") == "LAMBDA"
            for reference in walk(part["lhs"])
            for name in reference.get("column_names", ())
        }
        for part in walk(expression):
            kind = part.get("class")
            if kind is not None and kind not in _NESTED:
                raise ValueError(_REFUSED.get(kind, f"has an expression of the kind {kind}"))
            if kind == "FUNCTION":
                self._check_function(part["qualified_name"]["path"][-1].lower(), len(part["arguments"]))
            elif kind == "COLUMN_REF" and self.column(part) not in self._names | parameters:
                self._refuse_column(part)

    def column(self, reference: Mapping[str, Any]) -> str:
        """Return the name of the column that a reference leads to or into; "" for the whole row."""
        first, *rest = (str(name).lower() for name in reference["column_names"])
        if first != self._scope or first in self._names:
            return first
        return rest[0] if rest else ""

    def _refuse_column(self, reference: Mapping[str, Any]) -> None:
        name = ".".join(reference["column_names"])
        if not self.column(reference):
            raise ValueError(f'has "{name}" as a value: name its columns')
        raise ValueError(f'there is no column "{name}"{nearest(name, self._names)}')

    def _check_function(self, name: str, arguments: int) -> None:
        function = _functions().get(name)
        if name == "unnest":
            raise ValueError(f'"{name}" {_KINDS["table"]}')
        if function is None:
            raise ValueError(f'there is no function "{name}"{nearest(name, _functions())}')
        if not function.kinds & {"scalar", "macro"}:
            raise ValueError(
                f'"{name}" {next((_KINDS[kind] for kind in function.kinds & _KINDS.keys()), "is refused")}'
            )
        if ("scalar" in function.kinds and not function.same) or (name in _OF_TODAY and arguments == 1):
            raise ValueError(f'"{name}" is not deterministic: rows that are read again must become the same rows')
        for parameters, definition in function.macros if name not in self._macros else ():
            inner = _Rule(parameters, "", self._macros | {name})
            try:
                for each in _node(f"SELECT {definition}")["select_list"]:
                    inner.check(each)
            except ValueError as exc:
                raise ValueError(f'"{name}" is refused: {exc}') from None


def _check_names(select_list: Sequence[Mapping[str, Any]], own: Sequence[str]) -> None:
    """Refuse another value under the name of a column of the records: `verify` compares these with the log."""
    names = {name.lower(): name for name in own}
    for part in select_list:
        given = [part["alias"]]
        if part["class"] == "STAR":
            given = [each["key"] for each in part["replace_list"]] + [each["value"] for each in part["rename_list"]]
        elif part["class"] == "COLUMN_REF" and part["column_names"][-1].lower() == part["alias"].lower():
            given = []
        for name in given:
            if name.lower() in names:
                raise ValueError(f'"{names[name.lower()]}" is a column of the records: give this value another name')


def _expressions(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the expressions of the list of a query, also those within *."""
    expressions: list[dict[str, Any]] = []
    for part in node["select_list"]:
        expressions += _star_parts(part) if part["class"] == "STAR" else [part]
    return expressions


def _failing(node: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the query for the rows for which an expression of ``node`` fails.

    TRY returns null for these. A struct tells them from rows for which the expression is null.
    """
    probe = _node(f"SELECT {ROW} FROM {TABLE} WHERE TRY({{'kept': CASE WHEN true THEN {{'none': 0}} END}}) IS NULL")
    case = probe["where_clause"]["children"][0]["children"][0]["arguments"][0]["expression"]
    check = case["case_checks"][0]
    if node["where_clause"] is not None:
        check["when_expr"] = node["where_clause"]
    if expressions:
        check["then_expr"]["arguments"] = [
            {"name": f"c{i}", "expression": {**each, "alias": f"c{i}"}} for i, each in enumerate(expressions)
        ]
    probe["from_table"] = node["from_table"]
    return probe


def read_transform(
    text: str, decoded: "Sequence[Column] | None", columns: Sequence[str], system: str, *, carries_time: bool = False
) -> "tuple[Query, pa.Schema]":
    """Read a query over records of ``system``; return it with the Arrow columns of its result.

    ``decoded`` are the columns of decoded values and keys, beside which columns of the records have a _ before their
    name; None for records as they are. ``columns`` are those that * stands for; the others of the records are there by
    name. Raises ValueError with the reason, for the author of the configuration.
    """
    prefix = "" if decoded is None else "_"
    types = types_of_records(system, prefix)
    own = names_of_records(system, decoded)
    query = read_query(text, columns, own, carries_time=carries_time, prefix=prefix)
    query, result = _bound(query, _batch_schema(decoded or (), types, (*columns, *query.own)))
    if decoded is not None and all(name in own for name in result.names):
        raise ValueError("has only columns of the records: it must have one of the values")
    return query, result


def _batch_schema(decoded: "Sequence[Column]", own: "Mapping[str, pa.DataType]", columns: Sequence[str]) -> "pa.Schema":
    """Return the Arrow columns of a batch."""
    import pyarrow as pa

    values = arrow_schema(decoded)
    return pa.schema([values.field(name) if name in values.names else pa.field(name, own[name]) for name in columns])


def _bound(query: Query, schema: "pa.Schema") -> "tuple[Query, pa.Schema]":
    """Return the query as DuckDB runs it, and the columns of its result, without the carried ones.

    Raises ValueError with the reason, for the author of the configuration.
    """
    import pyarrow as pa

    from .process import QueryError, RowsError, SqlProcess

    names = [name.lower() for name in schema.names]
    if repeated := next((name for name in schema.names if names.count(name.lower()) > 1), None):
        raise ValueError(f'the batch has several columns "{repeated}" but for the case, which SQL does not tell apart')
    rows = pa.RecordBatch.from_pylist([], schema.append(pa.field(ROW, pa.int64())))
    runner = SqlProcess() if query.constants else _Here()  # a constant may take any memory
    try:
        found = runner.select(query.sql, rows).schema
        try:
            runner.select(query.failing, rows)
        except QueryError:
            query = replace(query, failing="")  # TRY takes no error()
        if query.constants:
            _compute(runner, query.constants)
    except (QueryError, RowsError) as exc:
        raise ValueError(f"does not fit the columns: {exc}") from None
    except OSError as exc:
        raise ValueError(f"cannot be tried: its process: {exc}") from None
    finally:
        runner.end()
    result = pa.schema(list(found)[: -2 if query.carries_time else -1])
    check_result(result)
    return query, result


def _compute(runner: "SqlProcess | _Here", sql: str) -> None:
    """Run a query without columns. Raises NoMemoryError, NoTimeError.

    Another error may be that of a branch that no row takes.
    """
    import pyarrow as pa

    from .process import NoMemoryError, NoTimeError, QueryError, RowsError

    try:
        runner.select(sql, pa.RecordBatch.from_pydict({ROW: [0]}))
    except (NoMemoryError, NoTimeError):
        raise
    except (QueryError, RowsError):
        pass


class _Here:
    """Runs queries in this process."""

    def __init__(self) -> None:
        self._engine = engine()

    def select(self, sql: str, source: "pa.RecordBatch") -> "pa.Table":
        """See ``SqlProcess``. Raises QueryError."""
        import duckdb
        import pyarrow as pa

        from .process import QueryError

        self._engine.register(TABLE, pa.Table.from_batches([source]))
        try:
            return self._engine.sql(landing_sql(self._engine, sql)).to_arrow_table()
        except duckdb.Error as exc:
            raise QueryError(first_line(exc)) from None
        finally:
            self._engine.unregister(TABLE)

    def end(self) -> None:
        self._engine.close()


def landing_sql(engine: "duckdb.DuckDBPyConnection", sql: str) -> str:
    """Return a query whose result files hold: what no decimal holds makes it fail for the row.

    Arrow would have a HUGEINT as a decimal, however many digits it has. Raises ValueError for types of which Arrow has
    other values; errors of DuckDB.
    """
    relation = engine.sql(sql)
    casts = []
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if (text := _landing_type(kind, name)) != str(kind):
            casts.append(f"CAST({quoted(name)} AS {text}) AS {quoted(name)}")
    return f"SELECT * REPLACE ({', '.join(casts)}) FROM ({sql})" if casts else sql


def _landing_type(kind: Any, column: str) -> str:
    if kind.id in ("hugeint", "uhugeint"):
        return "DECIMAL(38,0)"
    if kind.id in ("bit", "time with time zone"):
        raise ValueError(
            f'has the column "{column}" of the type {kind}, which files do not hold: cast it, for example '
            f"to {'VARCHAR' if kind.id == 'bit' else 'TIME'}"
        )
    if kind.id not in ("list", "array", "struct", "map"):
        return str(kind)
    inner = [(name, _landing_type(each, column)) for name, each in kind.children if not isinstance(each, int)]
    if all(text == str(each) for (_, text), (_, each) in zip(inner, kind.children, strict=False)):
        return str(kind)
    if kind.id == "struct":
        return f"STRUCT({', '.join(f'{quoted(name)} {text}' for name, text in inner)})"
    if kind.id == "map":
        return f"MAP({', '.join(text for _, text in inner)})"
    return f"{inner[0][1]}[{dict(kind.children).get('size', '')}]"


def quoted(name: str) -> str:
    """Return a name in quotes, in which SQL takes any name."""
    return '"' + name.replace('"', '""') + '"'
