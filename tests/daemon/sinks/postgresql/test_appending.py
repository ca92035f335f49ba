"""Records become rows: types, tables that are there, columns that come, and records that the database refuses."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from fastwire_daemon.config import ConfigError
from fastwire_daemon.runtime.errors import DatasetGoneError, DatasetMismatchError, LogRefusedError, SinkFailedError
from tests.databases.shop import ORDER, Given, Shop, avro, order

pytestmark = pytest.mark.database


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


EVERY: dict[str, Any] = {"type": "record", "name": "Every", "fields": [
    field("flag", "boolean"), field("small", "int"), field("large", "long"), field("half", "float"),
    field("whole", "double"), field("text", "string"), field("raw", "bytes"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("clock", {"type": "int", "logicalType": "time-millis"}),
    field("at", {"type": "long", "logicalType": "timestamp-micros"}),
    field("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    field("numbers", {"type": "array", "items": "int"}), field("words", {"type": "array", "items": ["null", "string"]}),
    field("place", {"type": "record", "name": "Place", "fields": [field("lat", "double"), field("raw", "bytes")]}),
    field("labels", {"type": "map", "values": "string"}),
    field("nested", {"type": "array", "items": {"type": "array", "items": "int"}}),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("none", ["null", "long"]),
]}  # fmt: skip
AT = datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)
VALUE: dict[str, Any] = {
    "flag": True, "small": -5, "large": 1 << 62, "half": 0.5, "whole": 1e300, "text": "ä\n\"'", "raw": b"\0\xff",
    "price": Decimal("-1234567890.12"), "day": date(1969, 12, 31), "clock": time(1, 2, 3, 4000), "at": AT,
    "local": AT.replace(tzinfo=None), "numbers": [1, -2, 3], "words": ["a", None, ""],
    "place": {"lat": 1.5, "raw": b"x"}, "labels": {"k": "v"}, "nested": [[1], [], [2, 3]], "kind": "B", "none": None,
}  # fmt: skip


def test_each_type_has_its_column(shop: Shop) -> None:
    sink, feed = shop.sink(EVERY, decode={"format": "avro"}), Given()
    sink.write(feed.records([avro(EVERY, VALUE)] * 3))
    sink.commit()
    assert shop.types() == {
        "flag": "boolean", "small": "integer", "large": "bigint", "half": "real", "whole": "double precision",
        "text": "text", "raw": "bytea", "price": "numeric(12,2)", "day": "date", "clock": "time without time zone",
        "at": "timestamp with time zone", "local": "timestamp without time zone", "numbers": "integer[]",
        "words": "text[]", "place": "jsonb", "labels": "jsonb", "nested": "jsonb", "kind": "text", "none": "bigint",
    }  # fmt: skip
    found = shop.query(
        "SELECT flag, small, large, half, whole, text, raw, price::text, day::text, clock::text, extract(epoch FROM at)"
        "::text, local::text, numbers, words, place::text, labels::text, nested::text, kind, none FROM orders"
    )
    assert found == 3 * [
        (
            *(True, -5, 1 << 62, 0.5, 1e300, "ä\n\"'", b"\0\xff", "-1234567890.12", "1969-12-31", "01:02:03.004"),
            *(f"{AT.timestamp():.6f}", "2026-03-01 12:30:15.123456", [1, -2, 3], ["a", None, ""]),
            *('{"lat": 1.5, "raw": "eA=="}', '{"k": "v"}', "[[1], [], [2, 3]]", "B", None),
        )
    ]
    assert shop.letters() == []


def test_records_as_they_are(shop: Shop) -> None:
    sink, feed = shop.sink(types={"value": "jsonb", "key": "text"}), Given()
    sink.write(feed.records([b'{"a": 1}', b"no JSON", b"\xff"]))
    coverage = sink.commit()
    assert shop.query("SELECT key, value::text, topic FROM orders") == [("0", '{"a": 1}', feed.logs[0].topic)]
    assert [(sqlstate, payload) for sqlstate, _, payload in shop.letters()] == [
        ("22023", b"\xff"),
        ("22P02", b"no JSON"),
    ]
    assert coverage.end(feed.logs[0]) is not None
    assert shop.query("SELECT records FROM fastwire_coverage") == [(3,)]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("id integer, note text", "id is integer, and the records have values for bigint"),
        ("id double precision, note text", "id is double precision, and the records have values for bigint"),
        ("id bigint, note integer", "note is integer, and the records have values for text"),
        ("id numeric(18), note text", "id is numeric(18,0), and the records have values for bigint"),
        ("id timestamptz, note text", "id is timestamp with time zone, and the records have values for bigint"),
        ("id bigint[], note text", "id is bigint[], and the records have values for bigint"),
        ("id bigint, note text, shop integer NOT NULL", "shop takes no nulls and has no default"),
        ("id bigint GENERATED ALWAYS AS IDENTITY, note text", "the server makes the values of id"),
    ],
)
def test_a_table_of_other_types_is_refused_at_the_start(shop: Shop, made: str, why: str) -> None:
    shop.query(f"CREATE TABLE orders ({made})")
    with pytest.raises(DatasetMismatchError) as refused:
        shop.sink(ORDER)
    assert why in str(refused.value)


def test_each_difference_is_told(shop: Shop) -> None:
    shop.query("CREATE TABLE orders (id integer, note bytea)")
    with pytest.raises(DatasetMismatchError, match=r"id is integer.*; note is bytea"):
        shop.sink(ORDER)
    shop.query("DROP TABLE orders")
    shop.query("CREATE VIEW orders AS SELECT 1::bigint AS id, ''::text AS note")
    with pytest.raises(DatasetMismatchError, match="is not a table"):
        shop.sink(ORDER)


@pytest.mark.parametrize(
    "made",
    [
        "note text, extra integer, id bigint PRIMARY KEY",
        "id numeric, note varchar(5)",
        "id numeric(19), note text DEFAULT 'x'",
        "id bigint, note text, n bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT now()",
    ],
)
def test_a_table_that_fits_is_taken(shop: Shop, made: str) -> None:
    shop.query(f"CREATE TABLE orders ({made})")
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1 << 60, "a"), order(-2)]))
    sink.commit()
    assert shop.query("SELECT id::text, note FROM orders ORDER BY id DESC") == [(str(1 << 60), "a"), ("-2", None)]


def test_text_goes_into_types_of_text(shop: Shop) -> None:
    shop.query("CREATE TYPE mood AS ENUM ('good', 'bad')")
    schema = {**ORDER, "fields": [field(name, "string") for name in ("u", "j", "m", "v")]}
    shop.query("CREATE TABLE orders (u uuid, j jsonb, m mood, v varchar(3))")
    sink, feed = shop.sink(schema), Given()
    good = {"u": "6BA7B810-9dad-11d1-80b4-00c04fd430c8", "j": '{"a": [1]}', "m": "bad", "v": "abc"}
    bad = [{**good, "u": "6ba7b810"}, {**good, "j": "{"}, {**good, "m": "so"}, {**good, "v": "abcd"}]
    sink.write(feed.records([json.dumps(each).encode() for each in (good, *bad)]))
    sink.commit()
    assert shop.query("SELECT u::text, j::text, m::text, v FROM orders") == [
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", '{"a": [1]}', "bad", "abc")
    ]
    bad = [bad[0], bad[3], bad[1], bad[2]]  # those that are not sent come first
    assert [(state, json.loads(payload)) for state, _, payload in shop.letters()] == list(
        zip(["22023", "22023", "22P02", "22P02"], bad, strict=True)
    )


def test_what_the_database_refuses_is_found(shop: Shop) -> None:
    shop.query("CREATE TABLE parent (id bigint PRIMARY KEY)")
    shop.query("INSERT INTO parent SELECT generate_series(0, 99)")
    shop.query(
        "CREATE TABLE orders (id bigint NOT NULL UNIQUE CHECK (id <> 13)"
        " REFERENCES parent DEFERRABLE INITIALLY DEFERRED, note text NOT NULL)"
    )
    sink, feed = shop.sink(ORDER), Given()
    values = [order(i, "x") for i in range(100)]
    values[7], values[13], values[20], values[21], values[50] = (
        order(7), values[13], order(20, "a\0b"), order(19, "again"), order(500, "no parent"),
    )  # fmt: skip
    sink.write(feed.records(values))
    sink.write(feed.records([order(98, "third")]))
    sink.commit()
    assert shop.query("SELECT count(*), count(DISTINCT id) FROM orders") == [(95, 95)]
    found = [(state, json.loads(payload)["id"]) for state, _, payload in shop.letters()]
    assert found == [("23502", 7), ("23514", 13), ("22021", 20), ("23505", 19), ("23503", 500), ("23505", 98)]
    assert sink.decoded[:2] == (95, 6)
    sink.write(feed.records([order(20, "y")]))
    sink.commit()
    assert shop.query("SELECT count(*) FROM orders") == [(96,)]


def test_times_that_the_server_has_not_are_dead_letters(shop: Shop) -> None:
    schema = {**ORDER, "fields": [
        field("at", {"type": "long", "logicalType": "timestamp-micros"}),
        field("day", {"type": "int", "logicalType": "date"}),
    ]}  # fmt: skip
    sink, feed = shop.sink(schema, decode={"format": "avro"}), Given()
    plain = {"fields": [field("at", "long"), field("day", "int")], "type": "record", "name": "Order"}
    least = -(1 << 63)
    # The driver makes -infinity of two of them, and wraps or cannot write others.
    times = [0, least, least + 946_684_800_000_000, (1 << 63) - 1, 0, 0, 0]
    days = [0, 0, 0, 0, -(1 << 31), -(1 << 31) + 10_957, (1 << 31) - 1]
    sink.write(feed.records([avro(plain, {"at": at, "day": day}) for at, day in zip(times, days, strict=True)]))
    sink.commit()
    assert shop.query("SELECT at::text, day::text FROM orders") == [("1970-01-01 00:00:00+00", "1970-01-01")]
    assert [state for state, *_ in shop.letters()] == ["22008"] * 6


def test_a_refused_record_can_stop_its_partition(shop: Shop) -> None:
    shop.query("CREATE TABLE orders (id bigint, note text NOT NULL)")
    sink, feed = shop.sink(ORDER, decode={"on_error": "stop"}), Given()
    sink.write(feed.records([order(1, "a"), order(2)]))
    with pytest.raises(LogRefusedError, match="is refused by the database: 23502") as stopped:
        sink.commit()
    assert stopped.value.concerns(feed.logs[0])
    assert shop.query("SELECT count(*) FROM orders") == [(0,)]
    assert len(sink.open()) == 0


def test_columns_come_with_newer_schemas_and_restarts(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1, "a")]))
    coverage = sink.commit()
    sink.close()
    newer = {**ORDER, "fields": [*ORDER["fields"], {**field("price", ["null", "double"]), "default": None}]}
    sink, feed = shop.sink(newer), Given(coverage)
    sink.write(feed.records([b'{"id": 2, "note": null, "price": 2.5}', order(3)]))
    coverage = sink.commit()
    sink.close()
    sink, feed = shop.sink(ORDER), Given(coverage)
    sink.write(feed.records([order(4)]))
    sink.commit()
    assert shop.types() == {"id": "bigint", "note": "text", "price": "double precision"}
    assert shop.query("SELECT id, price FROM orders ORDER BY id") == [(1, None), (2, 2.5), (3, None), (4, None)]


def test_blanks_are_not_cut(shop: Shop) -> None:
    """The server cuts them at the end of a varchar in silence, and a char would get some."""
    shop.query("CREATE TABLE orders (id bigint, note varchar(3), more varchar(2)[])")
    schema = {**ORDER, "fields": [*ORDER["fields"], field("more", {"type": "array", "items": "string"})]}
    sink, feed = shop.sink(schema), Given()
    rows = [("ab ", []), ("ab  ", []), ("ä€x", ["ab", "b "]), ("a", ["ab "])]
    values = [json.dumps({"id": 1, "note": note, "more": more}).encode() for note, more in rows]
    sink.write(feed.records(values))
    sink.commit()
    assert shop.query("SELECT note, more FROM orders") == [("ab ", []), ("ä€x", ["ab", "b "])]
    assert [payload for *_, payload in shop.letters()] == [values[1], values[3]]
    shop.query("ALTER TABLE orders ALTER note TYPE char(3)")
    with pytest.raises(DatasetMismatchError, match=r"note is character\(3\)"):
        shop.sink(schema)


def test_a_database_of_another_encoding(shop: Shop) -> None:
    name = shop.url.rpartition("/")[2]
    shop.query(f"CREATE DATABASE {name}_latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    shop.url += "_latin"
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1, "ä"), order(2, "€")]))
    sink.commit()
    assert shop.query("SELECT id, ascii(note), length(note) FROM orders") == [(1, 0xE4, 1)]
    assert [state for state, *_ in shop.letters()] == ["22P05"]
    sink = shop.sink(transform="SELECT decode(value)::BIGINT AS id FROM batch", table="numbers")
    sink.write(Given().records([b"1", "2 €".encode()]))
    sink.commit()
    assert shop.query("SELECT id FROM numbers") == [(1,)]
    assert r"2 \u20ac" in shop.letters()[-1][1]


def test_a_type_that_cannot_have_the_values_leaves_nothing_behind(shop: Shop) -> None:
    sink = shop.sink(ORDER, types={"id": "integer"})
    with pytest.raises(DatasetMismatchError, match="id is integer, and the records have values for bigint"):
        sink.create_dataset()
    assert shop.query("SELECT relname::text FROM pg_class WHERE relname IN ('orders', 'fastwire_tables')") == []


def test_a_dropped_table_is_not_made_again(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER), Given()
    sink.write(feed.records([order(1)]))
    coverage = sink.commit()
    shop.query("DROP TABLE orders")
    sink.write(Given(coverage).records([order(2)]))
    with pytest.raises(SinkFailedError, match="does not exist"):
        sink.commit()
    with pytest.raises(DatasetGoneError, match="it does not exist"):
        sink.open()
    with pytest.raises(DatasetGoneError, match="it does not exist"):
        shop.sink(ORDER)


def test_names_are_quoted_and_not_too_long(shop: Shop) -> None:
    shop.query('CREATE SCHEMA "My shop"')
    schema = {**ORDER, "fields": [field("Id", "long"), field("select", "string"), field("x" * 63, "int")]}
    sink, feed = shop.sink(schema, table='My shop.Or"ders'), Given()
    value = {"Id": 1, "select": "a", "x" * 63: 2}
    sink.write(feed.records([json.dumps(value).encode()]))
    sink.commit()
    assert shop.query('SELECT "Id", "select" FROM "My shop"."Or""ders"') == [(1, "a")]
    with pytest.raises(ConfigError, match="too long"):
        shop.sink({**ORDER, "fields": [field("x" * 64, "int")]}, table="other")
