"""A row a key: the last record of a key wins, tombstones delete, change events mirror a table."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from fastwire_daemon.config import ConfigError
from fastwire_daemon.runtime.errors import DatasetMismatchError, SinkFailedError
from fastwire_daemon.sinks.postgresql.proof import verify_tables
from fastwire_daemon.sinks.postgresql.session import Server
from tests.daemon.sinks.postgresql.test_appending import field
from tests.databases.shop import ORDER, Given, Shop, order

pytestmark = pytest.mark.database

UPSERT: dict[str, Any] = {"mode": "upsert", "key": ["id"]}
PAIR = {**ORDER, "fields": [field("shop", "string"), field("id", "long"), *ORDER["fields"][1:]]}
KEY = {"type": "record", "name": "Key", "fields": PAIR["fields"][:2]}
EVENT: dict[str, Any] = {"type": "record", "name": "Event", "fields": [
    {**field("before", ["null", ORDER]), "default": None}, {**field("after", ["null", "Order"]), "default": None},
    field("op", "string"), {**field("ts_ms", ["null", "long"]), "default": None},
]}  # fmt: skip


@pytest.fixture(autouse=True)
def _sound(shop: Shop) -> Iterator[None]:
    """In the end the books of the table agree with what is there."""
    yield
    for report in verify_tables(Server(shop.url, "the database", 10.0), strict=True):
        assert report.problems == []


def rows(shop: Shop, columns: str = "id, note") -> list[tuple[Any, ...]]:
    return shop.query(f"SELECT {columns} FROM orders ORDER BY id")


def test_the_last_record_of_a_key_wins(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER, **UPSERT), Given()
    sink.write(feed.records([order(1, "a"), order(2, "b"), order(1, "c")]))
    sink.write(feed.records([order(3), order(2, "d")]))
    sink.commit()
    assert rows(shop) == [(1, "c"), (2, "d"), (3, None)]
    sink.write(feed.records([order(3, "e"), order(1)]))
    sink.commit()
    assert rows(shop) == [(1, None), (2, "d"), (3, "e")]
    assert shop.query("SELECT records FROM fastwire_coverage") == [(7,)]


def test_tombstones_delete(shop: Shop) -> None:
    sink, feed = shop.sink(ORDER, **UPSERT), Given()
    sink.write(feed.records([("1", order(1, "a")), ("2", order(2, "b")), ("3", order(3))]))
    sink.commit()
    sink.write(
        feed.records([("1", None), ("2", None), ("2", order(2, "again")), ("9", None), ("x", None), (None, None)])
    )
    sink.commit()
    assert rows(shop) == [(2, "again"), (3, None)]
    assert [(state, reason) for state, reason, _ in shop.letters()] == [
        ("23502", "23502: a column of its key is null")
    ] * 2
    assert list(shop.types()) == ["id", "note"]


def test_keys_of_records_have_the_columns(shop: Shop) -> None:
    (shop.folder / "key.avsc").write_text(json.dumps(KEY))
    keys = {"format": "json", "schema": str(shop.folder / "key.avsc")}
    decode = {"columns": ["*", "_key"], "keys": keys}
    sink, feed = shop.sink(PAIR, decode=decode, mode="upsert", key=["shop", "id"]), Given()

    def pair(shop: str, id: int, note: str | None) -> tuple[str, bytes | None]:
        key = {"shop": shop, "id": id}
        return json.dumps(key).encode().decode(), None if note is None else json.dumps({**key, "note": note}).encode()

    sink.write(feed.records([pair("x", 1, "a"), pair("y", 1, "b"), pair("x", 1, None)]))
    sink.commit()
    assert rows(shop, "shop, id, note, _key::text") == [("y", 1, "b", '{"id": 1, "shop": "y"}')]


def test_records_as_they_are_by_their_key(shop: Shop) -> None:
    sink, feed = shop.sink(mode="upsert", key=["key"], types={"key": "text"}, columns=["key", "value"]), Given()
    sink.write(feed.records([("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None)]))
    sink.commit()
    assert shop.query("SELECT key, value FROM orders") == [("a", b"3")]


def test_any_history_ends_as_in_a_dictionary(shop: Shop) -> None:
    """Many rolls of changes to few keys, some of them refused, against a dictionary."""
    shop.query("CREATE TABLE orders (id bigint PRIMARY KEY, note text CHECK (note <> 'bad'))")
    sink, feed, dice = shop.sink(ORDER, **UPSERT), Given(), random.Random(7)
    held: dict[int, str] = {}
    for _ in range(12):
        for _ in range(3):
            records: list[tuple[str | None, bytes | None] | bytes | None] = []
            for _ in range(dice.randrange(1, 40)):
                id, note = dice.randrange(8), dice.choice(["a", "b", "c", "bad", None])
                records.append((str(id), None if note is None else order(id, note)))
                if note is None:
                    held.pop(id, None)
                elif note != "bad":
                    held[id] = note
            sink.write(feed.records(records))
        sink.commit()
        assert dict(rows(shop)) == held


def test_a_key_needs_an_index(shop: Shop) -> None:
    shop.query("CREATE TABLE orders (id bigint, note text)")
    with pytest.raises(DatasetMismatchError, match="no primary key or unique index has the columns id"):
        shop.sink(ORDER, **UPSERT)
    shop.query("CREATE UNIQUE INDEX ON orders (id) WHERE note IS NULL")
    with pytest.raises(DatasetMismatchError, match="no primary key or unique index"):
        shop.sink(ORDER, **UPSERT)
    shop.query("CREATE UNIQUE INDEX ON orders (id)")
    shop.sink(ORDER, **UPSERT)


def test_what_upsert_needs(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="needs the records of a key in order"):
        shop.sink(ORDER, source={"subscription_type": "shared"}, **UPSERT)
    with pytest.raises(ConfigError, match='"number" is not a column of the rows'):
        shop.sink(ORDER, mode="upsert", key=["number"])
    with pytest.raises(ConfigError, match="no change events"):
        shop.sink(ORDER, envelope="debezium", **UPSERT)
    shop.sink(ORDER, **UPSERT).create_dataset()
    with pytest.raises(DatasetMismatchError, match="mode of the table: upsert id; configured: append"):
        shop.sink(ORDER)


def event(op: str, before: Any = None, after: Any = None) -> bytes:
    def row(value: Any) -> Any:
        return None if value is None else {"id": value[0], "note": value[1]}

    return json.dumps({"op": op, "before": row(before), "after": row(after), "ts_ms": 5}).encode()


def test_change_events_mirror_a_table(shop: Shop) -> None:
    sink, feed = shop.sink(EVENT, envelope="debezium", **UPSERT), Given()
    sink.write(feed.records([event("r", None, (1, "a")), event("c", None, (2, "b")), event("c", None, (3, "c"))]))
    sink.commit()
    assert shop.types() == {"id": "bigint", "note": "text"}
    changes = [
        event("u", (1, None), (1, "A")),
        event("d", (2, None)),
        None,
        event("d", (3, "c")),
        event("c", None, (3, "C")),
    ]
    sink.write(feed.records(changes))
    sink.commit()
    assert rows(shop) == [(1, "A"), (3, "C")]
    sink.write(feed.records([event("c", None, (4, "d")), event("t"), event("c", None, (5, "e"))]))
    sink.write(feed.records([event("t"), event("c", None, (6, "f"))]))
    sink.commit()
    assert rows(shop) == [(6, "f")]
    sink.write(feed.records([event("t")]))
    sink.commit()
    assert rows(shop) == []
    assert shop.types() == {"id": "bigint", "note": "text"}
    assert shop.letters() == []


def test_a_truncation_that_the_database_refuses_is_not_left_out(shop: Shop) -> None:
    sink, feed = shop.sink(EVENT, envelope="debezium", **UPSERT), Given()
    sink.write(feed.records([event("c", None, (1, "a"))]))
    sink.commit()
    shop.query("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'stays'; END$$")
    shop.query("CREATE TRIGGER no BEFORE TRUNCATE ON orders EXECUTE FUNCTION no()")
    sink.write(feed.records([event("t"), event("c", None, (2, "b"))]))
    with pytest.raises(SinkFailedError, match="P0001: stays"):
        sink.commit()
    assert rows(shop) == [(1, "a")]
    shop.query("DROP TRIGGER no ON orders")
    sink.write(Given(sink.open()).records([event("t"), event("c", None, (2, "b"))]))
    sink.commit()
    assert rows(shop) == [(2, "b")]


def test_events_that_are_none_or_lack_values(shop: Shop) -> None:
    sink, feed = shop.sink(EVENT, envelope="debezium", **UPSERT), Given()
    bad = [event("x", None, (1, "a")), event("u", None, (2, "__debezium_unavailable_value")), event("c", (3, "c"))]
    sink.write(feed.records([*bad, event("c", None, (4, "d"))]))
    sink.commit()
    assert rows(shop) == [(4, "d")]
    assert [payload for *_, payload in shop.letters()] == bad
    reasons = [reason for _, reason, _ in shop.letters()]
    assert "op is not one of" in reasons[0]
    assert "REPLICA IDENTITY FULL" in reasons[1]
    assert "a column of its key is null" in reasons[2]
