"""``query``: SQL over topics of the embedded brokers."""

import _thread
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import fastwire_daemon as fw
from fastwire.errors import FastwireError
from fastwire.kafka.producing.payload import encode_block_batch, encode_values
from fastwire.systems import row_of
from fastwire_daemon.cli.commands import query
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.prompt import background, decoding
from fastwire_daemon.prompt.query import QueryError, TopicTable, opened, reading, table_name, tables_of
from tests.daemon.cli.program import Run
from tests.support.schema_registry import framed, serving

CITIES = ["Zürich", "Genève", None]


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as made:
        made.create_topic("orders", 2)
        made.create_topic("customers", 1)
        for partition in range(2):
            orders = [{"id": n, "city": CITIES[n % 3], "amount": n / 2} for n in range(300)]
            made.produce("orders", [json.dumps(each).encode() for each in orders], partition)
        made.produce("customers", [b"c%d" % n for n in range(3)], 0)
        yield made


@pytest.fixture
def typed(tmp_path: Path) -> tuple[str, ...]:
    """The options that decode orders."""
    fields = [("id", "long"), ("city", ["null", "string"]), ("amount", "double")]
    schema = {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    return "--decode", "json", "--schema-file", str(tmp_path / "order.avsc")


def rows(run: Run, *arguments: str) -> list[dict[str, object]]:
    code, out, err = run("query", *arguments, "--format", "jsonl")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_records_as_they_are(run: Run, kafka: KafkaDevBroker) -> None:
    sql = 'SELECT partition, count(*) AS n, max("offset") AS last FROM orders GROUP BY 1 ORDER BY 1'
    assert rows(run, kafka.url, "orders", sql) == [
        {"partition": 0, "n": 300, "last": 299},
        {"partition": 1, "n": 300, "last": 299},
    ]
    assert rows(run, kafka.url, "customers", "SELECT value FROM customers ORDER BY 1") == [
        {"value": f"c{n}"} for n in range(3)
    ]
    assert len(rows(run, kafka.url, "customers")) == 3
    assert rows(run, kafka.url, "orders", "SELECT count(*) AS n FROM orders;") == [{"n": 600}]


def test_fields_of_values(run: Run, kafka: KafkaDevBroker, typed: tuple[str, ...]) -> None:
    sql = (
        "SELECT city, count(*) AS n, avg(amount) AS mean FROM orders WHERE _timestamp > now() - INTERVAL 1 HOUR "
        "GROUP BY city ORDER BY city NULLS LAST"
    )
    assert rows(run, kafka.url, "orders", sql, *typed) == [
        {"city": "Genève", "n": 200, "mean": 74.75},
        {"city": "Zürich", "n": 200, "mean": 74.25},
        {"city": None, "n": 200, "mean": 75.25},
    ]
    assert rows(run, kafka.url, "orders", "SELECT * FROM orders WHERE id = 1 AND _partition = 0", *typed) == [
        {"id": 1, "city": "Genève", "amount": 0.5, "_partition": 0}
    ]


def test_names_have_no_case(run: Run, kafka: KafkaDevBroker, typed: tuple[str, ...]) -> None:
    assert len(rows(run, kafka.url, "customers", "SELECT VALUE FROM Customers")) == 3
    found = rows(run, kafka.url, "orders", "SELECT count(CITY) AS n, max(_OFFSET) AS last FROM ORDERS", *typed)
    assert found == [{"n": 400, "last": 299}]


def test_records_without_fields_count(run: Run, kafka: KafkaDevBroker) -> None:
    kafka.create_topic("plain", 1)
    for count in (0, 2):
        if count:
            kafka.produce("plain", [b"{}"] * count, 0)
        options = "--decode", "json"
        found = rows(run, kafka.url, "plain", "SELECT count(*) AS n FROM plain", *options)
        assert found == [{"n": count}]


@pytest.mark.parametrize("schema", ["infer", "file"])
def test_of_fields_that_differ_by_case_the_one_that_is_written_counts(
    run: Run, kafka: KafkaDevBroker, tmp_path: Path, schema: str
) -> None:
    kafka.create_topic("mixed", 1)
    kafka.produce("mixed", [b'{"City": "Bern", "city": "Basel"}'], 0)
    fields = [{"name": name, "type": ["null", "string"]} for name in ("City", "city")]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    options = "--decode", "json", "--schema-file", "infer" if schema == "infer" else str(tmp_path / "s.avsc")
    for name, value in (("City", "Bern"), ("city", "Basel")):
        assert rows(run, kafka.url, "mixed", f"SELECT {name} AS c FROM mixed", *options) == [{"c": value}]


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT city FROM orders WHERE amount > 1", ["city", "amount"]),
        ("SELECT City, _offset FROM orders", ["city", "_offset"]),
        ("SELECT count(*) FROM orders", ["_headers"]),
        ("SELECT * FROM orders", ["*"]),
    ],
)
def test_only_fields_that_a_query_names_become_columns(
    engine: duckdb.DuckDBPyConnection, sql: str, columns: list[str]
) -> None:
    [table] = tables_of(engine, sql, {"orders": "orders"})
    wanted = query._wanted(table, row_of("kafka").names, {"format": "json"}, ["id", "city", "amount"])
    assert wanted["columns"] == columns


def test_a_record_counts_whatever_a_query_names(run: Run, kafka: KafkaDevBroker, typed: tuple[str, ...]) -> None:
    """One whose value does not fit in a field that is not asked for is left out as well."""
    kafka.produce(
        "orders", [b'{"id": 1, "city": "Bern", "amount": "much"}', b'{"id": 2, "city": "Bern", "amount": 2}'], 0
    )
    for what in ("count(*)", "count(id)", "count(amount)"):
        found = rows(run, kafka.url, "orders", f"SELECT {what} AS n FROM orders", *typed)
        assert found == [{"n": 601}]
    _, _, err = run("query", kafka.url, "orders", "SELECT count(*) FROM orders", "--format", "csv", *typed)
    told = "1 records cannot be decoded and are left out; the first one, of orders partition 0"
    assert err.startswith(told) and err.endswith("in amount\n")


def test_topics_are_joined_and_read_twice(run: Run, kafka: KafkaDevBroker) -> None:
    joined = 'SELECT count(*) AS n FROM orders JOIN customers USING ("offset")'
    assert rows(run, kafka.url, "orders,customers", joined) == [{"n": 6}]
    twice = 'SELECT count(*) AS n FROM orders a JOIN orders b ON a."offset" = b."offset"'
    assert rows(run, kafka.url, "orders", twice) == [{"n": 1200}]
    nested = "SELECT (SELECT count(*) FROM customers) + (SELECT count(*) FROM customers) AS n"
    assert rows(run, kafka.url, "customers", nested) == [{"n": 6}]


def test_columns_of_one_name_keep_their_own_values(run: Run, kafka: KafkaDevBroker) -> None:
    sql = 'SELECT o.value, c.value FROM orders o JOIN customers c USING ("offset") WHERE o.partition = 1 ORDER BY 2'
    [first, *_] = rows(run, kafka.url, "orders,customers", sql)
    assert first == {"value": '{"id": 0, "city": "Z\\u00fcrich", "amount": 0.0}', "value_1": "c0"}


def test_forms(run: Run, kafka: KafkaDevBroker, tmp_path: Path) -> None:
    sql = "SELECT value, 1 AS one FROM customers ORDER BY value"
    assert run("query", kafka.url, "customers", sql)[1] == "value,one\nc0,1\nc1,1\nc2,1\n"
    code, out, _ = run("query", kafka.url, "customers", sql, "--format", "table")
    assert code == 0 and [word in out for word in ("value", "one", "c2")] == [True] * 3
    file = tmp_path / "it's.parquet"
    assert run("query", kafka.url, "customers", sql, "--format", "parquet", "-o", str(file))[0] == 0
    assert pq.read_table(file).column("value").to_pylist() == [b"c0", b"c1", b"c2"]
    assert run("query", kafka.url, "customers", sql, "-o", str(tmp_path / "x.csv"))[0] == 0
    assert (tmp_path / "x.csv").read_text().startswith("value,one\n")


def test_json_of_what_a_query_has_made_text_under_the_name_of_the_bytes(run: Run, kafka: KafkaDevBroker) -> None:
    city = "SELECT value->>'$.city' AS city FROM {} LIMIT 1"
    for source in ("(SELECT decode(value) AS value FROM orders)", "(SELECT decode(Value) FROM orders) AS o(value)"):
        assert rows(run, kafka.url, "orders", city.format(source)) == [{"city": "Zürich"}]
    for name in ("c AS (SELECT decode(value) AS value", "c(value) AS (SELECT decode(value)"):
        found = rows(run, kafka.url, "orders", f"WITH {name} FROM orders) {city.format('c')}")
        assert found == [{"city": "Zürich"}]


def test_bytes_that_are_no_text_are_escaped(run: Run, kafka: KafkaDevBroker) -> None:
    kafka.create_topic("bytes", 1)
    kafka.produce("bytes", [b"\xff\x00", "ü".encode()], 0)
    found = rows(run, kafka.url, "bytes", 'SELECT value FROM bytes ORDER BY "offset"')
    assert found == [{"value": "\\xFF\\x00"}, {"value": "ü"}]


WRONG = {
    "JSON of bytes": (("orders", "SELECT value->>'$.city' FROM orders"), "decode(value) makes text of it"),
    "JSON of bytes within": (
        ("orders", "SELECT value->>'$.city' FROM (SELECT value AS value FROM orders)"),
        "decode(value) makes text of it",
    ),
    "bytes as JSON": (("orders", "SELECT o.value::json FROM orders o"), "decode(value) makes text of it"),
    "no table": (("orders", "SELECT * FROM ordrs"), "ordrs does not exist! The topics are the tables orders\n"),
    "no function of the type": (("orders", "SELECT sum(topic) FROM orders"), "add explicit type casts.\n"),
    "no column": (("orders", "SELECT price FROM orders"), "price"),
    "no SELECT": (("orders", "DROP TABLE orders"), "Only SELECT"),
    "no syntax": (("orders", "SELEC"), "syntax error"),
    "two statements": (("orders", "SELECT 1; SELECT 2"), "several statements"),
    "a hidden topic": (("orders", "WITH orders AS (SELECT 1) SELECT * FROM orders"), "WITH gives the name"),
    "two of one name": (("a/b/orders,c/d/orders",), "two topics have one table name"),
    "parquet on standard output": (("orders", "--format", "parquet"), "needs --output"),
    "a schema without a format": (("orders", "--schema-file", "x.avsc"), "is for --decode"),
    "no memory": (("orders", "--memory", "lots"), "--memory"),
    "too little memory": (("orders", "--memory", "5"), "--memory: must be at least 16MiB"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be(run: Run, kafka: KafkaDevBroker, what: str) -> None:
    arguments, said = WRONG[what]
    code, _, err = run("query", kafka.url, *arguments)
    assert code == 2, err
    assert said in err


def test_a_value_that_fails_is_no_mistake_of_the_query(run: Run, kafka: KafkaDevBroker) -> None:
    code, out, err = run("query", kafka.url, "customers", "SELECT CAST(decode(value) AS INT) FROM customers")
    assert (code, out) == (1, "")
    assert "c0" in err and "Usage" not in err and "LINE" not in err and len(err.splitlines()) == 1


def test_a_broker_that_is_not_there(run: Run) -> None:
    code, _, err = run("query", "kafka://127.0.0.1:1", "orders", "SELECT 1 FROM orders")
    assert code == 1
    assert "Connection refused" in err


def test_a_system_without_times_is_read_from_its_beginning(run: Run) -> None:
    with running(TubeMQDevBroker(TubeMQOptions())) as tubemq:
        tubemq.create_topic("orders", 1)
        tubemq.produce("orders", [b"x"] * 5, 0)
        sql = "SELECT count(*) AS n FROM orders WHERE timestamp > now() - INTERVAL 1 HOUR"
        assert rows(run, tubemq.url, "orders", sql) == [{"n": 0}]  # these have no time
        assert rows(run, tubemq.url, "orders", "SELECT count(*) AS n FROM orders") == [{"n": 5}]


# --- what a query needs of a topic


@pytest.fixture
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with opened(64 << 20) as made:
        yield made


TIME = datetime(2026, 1, 1, tzinfo=UTC)
NEEDS = {
    "SELECT a FROM t": ({"a"}, {}),
    "SELECT * FROM t": (set(), {}),
    "SELECT t FROM t": ({"t"}, {}),
    "SELECT x FROM t AS x": ({"x"}, {}),
    "SELECT * FROM t WHERE a": ({"a"}, {}),
    "SELECT count(*) FROM t": (set(), {}),
    "SELECT sum(a + t.b) FROM t GROUP BY lower(c) ORDER BY max(d)": ({"a", "b", "c", "d", "t"}, {}),
    "SELECT a FROM t WHERE time >= '2026-01-01'": ({"a", "time"}, {"time": TIME}),
    "SELECT a FROM t AS x WHERE X.time >= '2026-01-01'": ({"a", "X", "time"}, {"time": TIME}),
    "SELECT a FROM t WHERE b.time >= '2026-01-01'": ({"a", "b", "time"}, {}),
    "SELECT a FROM t WHERE '2026-01-01' < time AND b": ({"a", "b", "time"}, {"time": TIME}),
    "SELECT a FROM t WHERE time BETWEEN TIMESTAMP '2026-01-01' AND now()": ({"a", "time"}, {"time": TIME}),
    "SELECT a FROM t WHERE time > '2025-01-01' AND time > '2026-01-01'": ({"a", "time"}, {"time": TIME}),
    "SELECT a FROM t WHERE time > '2026-01-01' OR b": ({"a", "b", "time"}, {}),
    "SELECT a FROM t WHERE NOT time > '2026-01-01'": ({"a", "time"}, {}),
    "SELECT a FROM t WHERE time > b": ({"a", "b", "time"}, {}),
    "SELECT a FROM t WHERE time > (SELECT max(time) FROM t)": ({"a", "time"}, {}),
    "SELECT a FROM t WHERE time > 'soon'": ({"a", "time"}, {}),
    "SELECT a FROM t WHERE time < '2026-01-01'": ({"a", "time"}, {}),
}


@pytest.mark.parametrize("sql", NEEDS)
def test_needs(engine: duckdb.DuckDBPyConnection, sql: str) -> None:
    columns, since = NEEDS[sql]
    [found] = tables_of(engine, sql, {"t": "t"})
    assert found.columns == columns
    assert found.since == since
    assert found.all_columns == (sql.startswith(("SELECT *", "SELECT t ", "SELECT x ")))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT #2 FROM t",
        "SELECT b FROM t ORDER BY #1",
        "SELECT x FROM t AS u(x, time) WHERE time > '2026-01-01'",
        "SELECT count(*) FROM t PIVOT (sum(a) FOR b IN (1, 2))",
        "SELECT n FROM t UNPIVOT (v FOR n IN (a, b))",
        "SELECT main.t FROM t",
    ],
)
def test_columns_that_are_needed_without_their_names(engine: duckdb.DuckDBPyConnection, sql: str) -> None:
    [found] = tables_of(engine, sql, {"t": "t"})
    assert found.all_columns and not found.since


def test_columns_by_their_places(run: Run, kafka: KafkaDevBroker, typed: tuple[str, ...]) -> None:
    found = rows(run, kafka.url, "orders", "SELECT max(#3) AS most, count(#2) AS n FROM orders", *typed)
    assert found == [{"most": 149.5, "n": 400}]
    assert rows(run, kafka.url, "orders", "SELECT max(x) AS most FROM orders AS o(x, y)", *typed) == [{"most": 299}]


def test_a_time_before_now(engine: duckdb.DuckDBPyConnection) -> None:
    [found] = tables_of(engine, "SELECT 1 FROM T WHERE time > now() - INTERVAL 1 HOUR", {"t": "t"})
    assert isinstance(found, TopicTable) and found.name == "t"
    assert timedelta(minutes=59) < datetime.now(UTC) - found.since["time"] < timedelta(minutes=61)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            duckdb.IOException(
                'IO Error: write failed for [offset=1]: {"exception_type":"IO","exception_message":"Could not write '
                'file \\"x.csv\\": No space left on device","errno":"28"}'
            ),
            'Could not write file "x.csv": No space left on device',
        ),
        (
            duckdb.OutOfMemoryException(
                "failed to offload 9 bytes. This limit was set by the 'max_temp_directory_size' setting. PRAGMA …"
            ),
            "failed to offload 9 bytes. The folder for temporary files is full: TMPDIR names another one",
        ),
        (duckdb.OutOfMemoryException("no room"), "no room. --memory gives it more"),
    ],
)
def test_what_the_engine_says_of_a_lack_of_space(error: duckdb.Error, said: str) -> None:
    with pytest.raises(QueryError, match=f"^{re.escape(said)}$"), reading(()):
        raise error


def test_names_of_tables() -> None:
    assert table_name("persistent://public/default/orders") == table_name("orders") == "orders"


def test_rows_as_they_come_until_ctrl_c(kafka: KafkaDevBroker, typed: tuple[str, ...]) -> None:
    """Each batch is printed when it comes; the columns are named once, and Ctrl-C is an end without an error."""
    sql = "SELECT city, amount FROM orders WHERE amount >= 1000"
    command = [sys.executable, "-m", "fastwire_daemon.cli", "query", kafka.url, "orders", sql, "--follow", *typed]
    running_query = subprocess.Popen(
        [*command, "--from", "earliest"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running_query.stdout is not None
    try:
        kafka.produce("orders", [b'{"id": 1, "city": "Bern", "amount": 1000}', b"none"], 0)
        assert [running_query.stdout.readline() for _ in range(2)] == ["city,amount\n", "Bern,1000.0\n"]
        kafka.produce("orders", [b'{"id": 2, "city": "Basel", "amount": 2000}'], 1)
        assert running_query.stdout.readline() == "Basel,2000.0\n"
        kafka.produce("orders", [b'{"id": 3, "city": "Chur", "amount": 3000}'], 0)
        assert running_query.stdout.readline() == "Chur,3000.0\n"
        running_query.send_signal(signal.SIGINT)
        out, err = running_query.communicate(timeout=60)
        assert (running_query.returncode, out) == (0, "")
        assert "1 records cannot be decoded" in err
    finally:
        running_query.kill()


def test_ctrl_c_ends_it_wherever_it_comes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """At each line that the main thread runs while a result is printed: nothing is left that an end would wait for."""
    files = {query.__file__, background.__file__}
    limit = at = 0
    threads = _thread._count()

    def interrupting(frame: FrameType, event: str, _: object) -> Any:
        nonlocal at
        if frame.f_code.co_filename not in files:
            return None
        at += event == "line"
        if at == limit:
            raise KeyboardInterrupt
        return interrupting

    interrupted = 0
    with opened(64 << 20) as engine:
        sql = "SELECT repeat('x', 1000) AS value FROM range(200)"  # more than fits into a pipe
        while interrupted == limit:
            limit, at = limit + 1, 0
            try:
                sys.settrace(interrupting)
                query._print(engine, (), sql, "FORMAT csv, HEADER")
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                sys.settrace(None)
            until = time.monotonic() + 60
            while _thread._count() > threads:
                assert time.monotonic() < until, f"interrupted at line {limit}"
                time.sleep(0.001)
        assert interrupted > 20
        assert engine.execute("SELECT 1").fetchall() == [(1,)]
    assert capfdbinary.readouterr().out.endswith(b"x" * 1000 + b"\n")


def test_following_ends_when_nobody_reads_the_output(kafka: KafkaDevBroker) -> None:
    """As before a `head`; a batch is more than fits into a pipe."""
    kafka.produce("orders", [b"x" * 100_000] * 20, 0)
    command = [sys.executable, "-m", "fastwire_daemon.cli", "query", kafka.url, "orders", "--follow"]
    following = subprocess.Popen(
        [*command, "--from", "earliest"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert following.stdout is not None and following.stderr is not None
    try:
        following.stdout.readline()
        following.stdout.close()
        kafka.produce("orders", [b"x" * 100_000] * 20, 0)
        assert (following.wait(timeout=60), following.stderr.read()) == (0, "")
    finally:
        following.kill()
        following.stderr.close()


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT count(*) FROM orders", "count_star"),
        ("SELECT city FROM orders GROUP BY city", "GROUP BY"),
        ("SELECT value FROM orders ORDER BY 1", "ORDER BY"),
        ("SELECT DISTINCT value FROM orders", "DISTINCT"),
        ("SELECT row_number() OVER () FROM orders", "a window"),
        ("SELECT * FROM orders AS one JOIN orders AS other USING (value)", "several tables"),
        ("SELECT * FROM orders WHERE value IN (SELECT value FROM orders)", "a subquery"),
    ],
)
def test_a_query_that_needs_all_rows_does_not_follow(run: Run, kafka: KafkaDevBroker, sql: str, part: str) -> None:
    code, _, err = run("query", kafka.url, "orders", sql, "--follow")
    assert code == 2
    assert part in " ".join(err.split())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT City, city FROM mixed",
        "SELECT CITY FROM mixed",
        "SELECT *, city FROM mixed",
        "SELECT a.City, b.city FROM mixed a, mixed b",
        "SELECT who.X FROM mixed",
        "SELECT who['x'] FROM mixed",
    ],
)
def test_names_that_sql_does_not_tell_apart_are_refused(run: Run, kafka: KafkaDevBroker, sql: str) -> None:
    kafka.create_topic("mixed", 1)
    kafka.produce("mixed", [b'{"City": "Bern", "city": "Basel", "who": {"X": 1, "x": 2}}'], 0)
    options = "--decode", "json"
    code, out, err = run("query", kafka.url, "mixed", sql, *options)
    assert (code, out) == (2, "") and "differ by case only" in err
    assert rows(run, kafka.url, "mixed", "SELECT who FROM mixed", *options) == [{"who": {"X": 1, "x": 2}}]
    [everything] = rows(run, kafka.url, "mixed", "SELECT * FROM mixed", *options)
    assert [*everything.values()] == ["Bern", "Basel", {"X": 1, "x": 2}]


def test_a_time_without_records_has_the_columns_of_those_before(run: Run, kafka: KafkaDevBroker) -> None:
    kafka.create_topic("old", 2)
    values = [b'{"amount": 2.5}', b'{"amount": 1}']
    kafka.append("old", [encode_block_batch(encode_values(values), 2, base_timestamp=1_700_000_000_000)])
    sql = "SELECT count(*) AS n, max(amount) AS most FROM old WHERE _timestamp > now() - INTERVAL 1 HOUR"
    assert rows(run, kafka.url, "old", sql, "--decode", "json") == [{"n": 0, "most": None}]
    table = fw.read(kafka.url, "old", start="-1h", decode="json").to_table()
    assert (table.schema.names, table.num_rows) == (["amount"], 0)
    with pytest.raises(FastwireError, match="did you mean"):
        fw.read(kafka.url, "old", start="-1h", decode="json", columns=["amounts"]).to_table()


def test_ids_as_keys_are_a_map_where_asked(run: Run, kafka: KafkaDevBroker) -> None:
    kafka.create_topic("stock", 1)
    kafka.produce(
        "stock", [json.dumps({"held": {str(n * 600 + i): i for i in range(300)}}).encode() for n in (0, 1)], 0
    )
    code, _, err = run("query", kafka.url, "stock", "SELECT count(*) FROM stock", "--decode", "json")
    assert code == 78 and "--map" in err
    sql = "SELECT held['601'] AS one FROM stock"
    assert rows(run, kafka.url, "stock", sql, "--decode", "json", "--map", "held") == [{"one": None}, {"one": 1}]
    code, _, err = run("query", kafka.url, "stock", sql, "--decode", "avro", "--registry", "http://x", "--map", "held")
    assert code == 2 and "is for --decode json without a schema" in err


def test_a_topic_without_fields_says_so(run: Run, kafka: KafkaDevBroker) -> None:
    kafka.create_topic("empty", 1)
    for sql in ("SELECT * FROM empty", "SELECT * FROM empty a JOIN empty b ON true"):
        code, _, err = run("query", kafka.url, "empty", sql, "--decode", "json", "--schema-file", "infer")
        assert code == 1 and err.startswith("empty has no columns yet: it holds no record")


@pytest.mark.parametrize("schema", ["infer", "file"])
def test_a_wrong_name_is_answered_with_the_right_ones(
    run: Run, kafka: KafkaDevBroker, typed: tuple[str, ...], schema: str
) -> None:
    options = typed if schema == "file" else (*typed[:-1], "infer")
    code, _, err = run("query", kafka.url, "orders", "SELECT ctiy FROM orders", *options)
    assert code == 2
    assert 'Referenced column "ctiy" not found in FROM clause. orders has id, city, amount, _key, _value' in err
    assert "DESCRIBE" not in err


def test_a_registry_has_the_columns(run: Run, kafka: KafkaDevBroker) -> None:
    narrow = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    wide = {**narrow, "fields": [*narrow["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
    for topic in ("framed", "other"):
        kafka.create_topic(topic, 1)
        kafka.produce(topic, [framed(3, b"\x02")], 0)
        kafka.produce(topic, [framed(4, b"\x04\x02\x06abc")], 0)
    with serving() as registry:
        registry.register(3, narrow)
        registry.newest("framed-value", 4, wide)
        options = "--decode", "avro", "--registry", registry.url
        found = rows(run, kafka.url, "framed", "SELECT note, id FROM framed ORDER BY id", *options)
        assert found == [{"note": None, "id": 1}, {"note": "abc", "id": 2}]
        assert len(rows(run, kafka.url, "framed", "SELECT * FROM framed", *options)) == 2
        code, _, err = run("query", kafka.url, "other", "SELECT * FROM other", *options)  # no subject has its name
        assert code == 1 and err.startswith("a later record has the column note") and "Traceback" not in err


@pytest.mark.parametrize("given", [True, False])
def test_a_registry_that_is_away_is_not_waited_for_without_end(
    kafka: KafkaDevBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """Without a schema file it is asked before there are records."""
    monkeypatch.setattr(decoding, "AWAY_S", 0.0)
    kafka.create_topic("framed", 1)
    kafka.produce("framed", [framed(3, b"\x02")], 0)
    (tmp_path / "s.avsc").write_text('{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}')
    decode = {"format": "avro", "registry": {"url": "http://127.0.0.1:1"}}
    decode |= {"schema": str(tmp_path / "s.avsc")} if given else {}
    with pytest.raises(FastwireError, match=r"127\.0\.0\.1:1"):
        fw.read(kafka.url, "framed", decode=decode, progress=False).to_table()
