"""Queries over decoded rows: what is row-wise, what is refused, and the columns of the result."""

import json

import pyarrow as pa
import pytest

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.evolution import columns_of
from fastwire_daemon.config.sql.rowwise import engine, read_query, read_transform

ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "double"]}, {"name": "email", "type": "string"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}},
]}  # fmt: skip
FIELDS = ("id", "amount", "email", "tags", "place")
OWN = ("_topic", "_offset", "_timestamp")


def result(text: str, columns: tuple[str, ...] = FIELDS) -> pa.Schema:
    return read_transform(text, columns_of(compile_avro(json.dumps(ORDER))), columns, "kafka")[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT count(*) FROM batch", '"count_star" aggregates'),
        ("SELECT sum(id) FROM batch", '"sum" aggregates'),
        ("SELECT id FROM batch WHERE max(id) > 1", '"max" aggregates'),
        ("SELECT wavg(amount, id) AS w FROM batch", '"wavg" is refused: .*"sum" aggregates'),
        ("SELECT row_number() OVER () FROM batch", "has a window function"),
        ("SELECT lag(id) OVER (ORDER BY id) FROM batch", "has a window function"),
        ("SELECT id FROM batch ORDER BY id", "has ORDER BY"),
        ("SELECT id FROM batch LIMIT 3", "has LIMIT"),
        ("SELECT id FROM batch LIMIT 3%", "has LIMIT"),
        ("SELECT id FROM batch OFFSET 3", "has LIMIT"),
        ("SELECT DISTINCT id FROM batch", "has DISTINCT"),
        ("SELECT DISTINCT ON (id) id FROM batch", "has DISTINCT"),
        ("SELECT (SELECT 1) AS x FROM batch", "has a subquery"),
        ("SELECT id FROM batch WHERE id IN (SELECT id FROM batch)", "has a subquery"),
        ("SELECT id FROM (SELECT * FROM batch)", "reads a subquery"),
        ("SELECT unnest(tags) FROM batch", '"unnest" makes rows up'),
        ("SELECT regexp_split_to_table(email, 'x') FROM batch", "makes rows up"),
        ("SELECT id FROM batch, range(3)", "joins tables"),
        ("SELECT a.id FROM batch a JOIN batch b USING (id)", "joins tables"),
        ("SELECT * FROM read_csv('/etc/passwd')", 'reads the table function "read_csv"'),
        ("SELECT * FROM '/etc/passwd'", 'reads "/etc/passwd": the only table is batch'),
        ("SELECT id FROM main.batch", 'reads "main.batch"'),
        ("SELECT 1 AS one", "reads no table: add FROM batch"),
        ("VALUES (1)", "reads other rows than those of batch"),
        ("WITH x AS (SELECT 1) SELECT * FROM batch", "has WITH"),
        ("SELECT id FROM batch UNION ALL SELECT id FROM batch", "combines several SELECT"),
        ("SELECT id FROM batch GROUP BY id", "has GROUP BY"),
        ("SELECT id FROM batch GROUP BY ALL", "has GROUP BY"),
        ("SELECT id FROM batch GROUP BY GROUPING SETS ((id), ())", "has GROUP BY"),
        ("SELECT id FROM batch HAVING id > 1", "has (HAVING|GROUP BY)"),
        ("SELECT id FROM batch QUALIFY id > 1", "has QUALIFY"),
        ("SELECT id FROM batch USING SAMPLE 10", "has a sample"),
        ("SELECT id FROM batch TABLESAMPLE 10%", "has a sample"),
        ("SELECT x FROM batch AS b(x)", "with other columns"),
        ("SELECT random() AS x FROM batch", '"random" is not deterministic'),
        ("SELECT uuid() AS x FROM batch", '"uuid" is not deterministic'),
        ("SELECT now() AS x FROM batch", '"now" is not deterministic'),
        ("SELECT id FROM batch WHERE _timestamp < now()", '"now" is not deterministic'),
        ("SELECT current_timestamp AS x FROM batch", 'there is no column "current_timestamp"'),
        ("SELECT current_user AS x FROM batch", 'there is no column "current_user"'),
        ("SELECT age(_timestamp)::VARCHAR AS x FROM batch", '"age" is not deterministic'),
        ("SELECT ago(INTERVAL 1 DAY) AS x FROM batch", '"ago" is refused'),
        ("SELECT list_transform(tags, lambda t: t || random()) AS x FROM batch", '"random" is not deterministic'),
        ("SELECT * REPLACE (random() AS amount) FROM batch", '"random" is not deterministic'),
        ("SELECT current_setting('threads') AS x FROM batch", '"current_setting" is not deterministic'),
        ("SELECT nextval('s') AS x FROM batch", '"nextval" is not deterministic'),
        ("SELECT pg_sleep(1) AS x FROM batch", '"pg_sleep" is refused'),
        ("SELECT $1 AS x FROM batch", "has a parameter"),
        ("SELECT #1 FROM batch", "has a column by its number"),
        ("SELECT COLUMNS('a.*') FROM batch", "within an expression"),
        ("SELECT batch FROM batch", 'has "batch" as a value'),
        ("SELECT b FROM batch b", 'has "b" as a value'),
        ("SELECT _fastwire_row AS x FROM batch", 'there is no column "_fastwire_row"'),
        ("SELECT no FROM batch", 'there is no column "no"'),
        ("SELECT shout(email) AS x FROM batch", 'there is no function "shout"'),
        ("SELECT upper(_topic) AS _topic FROM batch", '"_topic" is a column of the records'),
        ("SELECT * REPLACE (1 AS _offset), _offset FROM batch", '"_offset" is a column of the records'),
        ("SELECT * RENAME (id AS _offset) FROM batch", '"_offset" is a column of the records'),
        ("SELECT id, id FROM batch", 'has the column "id" more than once'),
        ("SELECT id, email AS ID FROM batch", "more than once"),
        ("SELECT hash(id) AS h FROM batch", 'has the column "h" of the type uint64'),
        ("SELECT INTERVAL 1 DAY AS i FROM batch", 'has the column "i" of the type'),
        ("SELECT _offset FROM batch", "has only columns of the records"),
        ("SELECT email + 1 AS x FROM batch", "does not fit the columns"),
        ("SELECT 1; SELECT 2", "has 2 statements"),
        ("", "has 0 statements|is not a SELECT"),
        ("INSERT INTO batch VALUES (1)", "is not a SELECT that DuckDB reads"),
        ("SELECT id FRO batch", 'is not a SELECT that DuckDB reads: syntax error at or near "batch"'),
    ],
)
def test_a_query_that_is_not_row_wise_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        result(text)


def test_the_columns_of_a_result_are_known() -> None:
    found = result(
        "SELECT id, amount * 100 AS cents, sha256(email) AS who, [upper(t) for t in tags] AS tags, place.city, "
        "CASE WHEN id > 1 THEN 'a' END AS c, TRY_CAST(email AS INTEGER) AS n, year(_timestamp) AS y, _topic "
        "FROM batch WHERE NOT amount BETWEEN 1 AND 2 AND email LIKE '%@%'"
    )
    assert {field.name: str(field.type) for field in found} == {
        "id": "int64", "cents": "double", "who": "string", "tags": "list<l: string>", "city": "string", "c": "string",
        "n": "int32", "y": "int64", "_topic": "string",
    }  # fmt: skip


def test_a_star_stands_for_the_columns_of_the_table_decode() -> None:
    assert result("SELECT *, _offset FROM batch b WHERE _partition > 1").names == [*FIELDS, "_offset"]
    assert result("SELECT b.* EXCLUDE (email) FROM batch b WHERE b._offset > 1").names == [*FIELDS[:2], *FIELDS[3:]]
    assert result("SELECT *, 1 AS one FROM batch", ("id", "_topic")).names == ["id", "_topic", "one"]
    assert result("SELECT place.*, id FROM batch").names == ["city", "id"]
    assert result("FROM batch").names == list(FIELDS)


def test_a_query_names_the_columns_of_records_that_it_needs() -> None:
    query = read_query("SELECT id, _OFFSET FROM batch WHERE batch._topic = 'a'", FIELDS, OWN)
    assert query.own == ("_topic", "_offset")
    assert read_query("SELECT * FROM batch", FIELDS, OWN, carries_time=True).own == ("_timestamp",)


def test_fields_that_differ_in_case_only_are_refused() -> None:
    schema = {**ORDER, "fields": [*ORDER["fields"], {"name": "ID", "type": "long"}]}
    with pytest.raises(ValueError, match='several columns "id" but for the case'):
        read_transform("SELECT * FROM batch", columns_of(compile_avro(json.dumps(schema))), (*FIELDS, "ID"), "kafka")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT email::BIT AS b FROM batch", 'has the column "b" of the type BIT, .* VARCHAR'),
        ("SELECT [email::BIT] AS b FROM batch", 'has the column "b" of the type BIT'),
        ("SELECT email::TIMETZ AS t FROM batch", 'has the column "t" of the type TIME WITH TIME ZONE, .* TIME$'),
        ("SELECT list_sum(range(900000000)) + id AS n FROM batch", "does not fit the columns: Out of Memory Error"),
    ],
)
def test_results_that_no_file_holds(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        result(text)


def test_a_constant_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.config.sql.process._TIME_S", 0.2)
    with pytest.raises(
        ValueError, match=r"does not fit the columns: the query takes more than 0\.2 s of processor time"
    ):
        result("SELECT levenshtein(repeat('a', 200000), repeat('b', 200000)) + id AS n FROM batch")


def test_large_integers_are_decimals() -> None:
    found = result("SELECT id::HUGEINT AS h, {'a b': id::UHUGEINT} AS s, MAP {'k': [id::HUGEINT]} AS m FROM batch")
    decimal = pa.decimal128(38, 0)
    assert found.field("h").type == found.field("s").type.field("a b").type == decimal
    assert found.field("m").type.item_type.value_type == decimal


def test_a_query_with_errors_of_its_own_has_no_query_for_failing_rows() -> None:
    columns = columns_of(compile_avro(json.dumps(ORDER)))
    for text, known in (("error('no')", False), ("id::VARCHAR", True)):
        query, _ = read_transform(f"SELECT CASE WHEN id = 2 THEN {text} END AS x FROM batch", columns, FIELDS, "kafka")
        assert bool(query.failing) is known


def test_the_engine_reaches_no_file_and_keeps_its_settings() -> None:
    import duckdb

    made = engine()
    for text in ("FROM read_text('/etc/hostname')", "COPY (SELECT 1) TO '/tmp/x'", "SET threads = 4", "INSTALL httpfs"):
        with pytest.raises(duckdb.Error):
            made.execute(text).fetchall()
