"""``check --connect`` and ``verify`` of tables in PostgreSQL."""

import json
from typing import Any

import pytest

from fastwire_daemon.cli.check.checks import database_checks, static_checks
from fastwire_daemon.config import load_config
from fastwire_daemon.runtime.errors import DatasetMismatchError
from tests.daemon.cli.program import Run
from tests.databases.postgresql import query
from tests.databases.shop import ORDER, Given, Shop, order

pytestmark = pytest.mark.database


def checked(shop: Shop, **sink: Any) -> dict[str, tuple[bool, str]]:
    """The checks of a pipeline, by subject."""
    schema, file = shop.folder / "order.avsc", shop.folder / "orders.toml"
    schema.write_text(json.dumps(ORDER))
    keys = {"type": "postgresql", "url": shop.url, "table": "orders", **sink}
    file.write_text(
        '[pipelines.p.source]\nurl = "kafka://broker:9092"\ntopics = ["t"]\nsubscription = "s"\nstart = "earliest"\n'
        f'[pipelines.p.decode]\nformat = "json"\nschema = "{schema}"\n[pipelines.p.sink]\n'
        + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    )
    config = load_config(file)
    found = [*static_checks(config), *database_checks(config)]
    return {each.what: (each.ok, each.detail) for each in found}


def test_a_fresh_database_passes(shop: Shop) -> None:
    found = checked(shop)
    assert all(ok for ok, _ in (found["promise"], found["table"], found["rights"]))
    assert found["promise"][1] == "exactly once: rows and positions are one transaction"
    assert "will be made" in found["table"][1]
    assert found["database"] == (
        False,
        "fsync is off: a crash of the server's machine may lose rows that were acknowledged",
    )
    assert shop.query("SELECT count(*) FROM pg_class WHERE relname LIKE 'fastwire%'") == [(0,)]


def test_what_a_start_would_refuse_is_told(shop: Shop) -> None:
    shop.query("CREATE TABLE orders (id integer, note text)")
    ok, detail = checked(shop)["table"]
    assert not ok
    assert "id is integer, and the records have values for bigint" in detail
    assert checked(shop, mode="upsert", key=["number"])["table"][0] is False


def test_rights_that_are_missing_are_named(shop: Shop) -> None:
    shop.sink(ORDER, source={"url": "kafka://broker:9092", "subscription_type": None}).create_dataset()
    for statement in (
        "DROP ROLE IF EXISTS poor",
        "CREATE ROLE poor LOGIN",
        "GRANT SELECT ON fastwire_tables, fastwire_coverage TO poor",
    ):
        shop.query(statement)
    poor = Shop(shop.url.replace("loader@", "poor@"), shop.folder)
    ok, detail = checked(poor, url=poor.url)["rights"]
    assert not ok
    for right in (
        'INSERT on "public"."fastwire_tables"',
        'UPDATE on "public"."fastwire_coverage"',
        'INSERT on "public"."orders"',
    ):
        assert right in detail
    shop.query("DROP OWNED BY poor")
    shop.query("DROP ROLE poor")


def test_a_server_that_is_away_fails_the_check(shop: Shop) -> None:
    ok, detail = checked(shop, url="postgresql://loader@127.0.0.1:1/shop")["database"]
    assert not ok
    assert "refused" in detail


@pytest.mark.parametrize("lacking", ["role", "database"])
def test_a_login_that_the_server_refuses_is_told_with_what_helps(shop: Shop, lacking: str) -> None:
    here = shop.url.rpartition("/")[2] if lacking == "database" else "loader"
    url = shop.url.replace(here, "nobody")
    ok, detail = checked(shop, url=url)["database"]
    assert not ok
    assert f'{lacking} "nobody"' in detail and "does not exist. Let the user in there" in detail


def test_a_table_is_proved(shop: Shop, run: Run) -> None:
    shop.query("CREATE TABLE orders (id bigint CHECK (id <> 3), note text)")
    sink, feed = shop.sink(ORDER, transform=None), Given()
    sink.write(feed.records([order(1), order(2), order(3), b"{"]))
    sink.commit()
    code, out, _ = run("verify", shop.url)
    assert code == 0
    assert out.splitlines()[:3] == [
        "public.orders: sound",
        "  2 rows, append; 1 partition",
        "  of 4 records 2 have landed, 2 are dead letters, 0 were left out on purpose",
    ]
    shop.query("DELETE FROM orders WHERE id = 1")
    shop.query("DELETE FROM fastwire_dead_letters WHERE sqlstate = ''")
    code, out, _ = run("verify", shop.url, "--json")
    (table,) = json.loads(out)["tables"]
    assert (code, table["removed"], table["removed_letters"], table["problems"]) == (0, 1, 1, [])
    assert run("verify", shop.url, "--strict")[0] == 1
    shop.query("UPDATE fastwire_coverage SET records = records + 1")
    code, out, _ = run("verify", shop.url)
    assert code == 1
    assert "5 records have landed by their positions, and 4 by what became of them" in out
    shop.query("DROP TABLE orders")
    assert "the table does not exist" in run("verify", shop.url)[1]


def test_filtered_rows_are_counted_and_a_damaged_record_is_told(shop: Shop, run: Run) -> None:
    sink = shop.sink(transform="SELECT value FROM batch WHERE value <> 'b'::blob", types={"value": "text"})
    sink.write(Given().records([b"a", b"b", b"c"]))
    sink.commit()
    code, out, _ = run("verify", shop.url)
    assert code == 0
    assert "of 3 records 2 have landed, 0 are dead letters, 1 were left out on purpose" in out
    shop.query("UPDATE fastwire_coverage SET coverage = '[5]'")
    code, out, _ = run("verify", shop.url)
    assert code == 1
    assert "positions of orders are damaged" in out


def test_nothing_recorded_is_no_proof(shop: Shop, run: Run) -> None:
    code, out, _ = run("verify", shop.url)
    assert (code, out.endswith(": no table is recorded here\n")) == (1, True)
    assert "has a password" in run("verify", "postgresql://a:b@127.0.0.1/x")[2]


def test_a_later_format_is_refused_in_words(shop: Shop) -> None:
    shop.sink(ORDER).create_dataset()
    query(shop.url, "UPDATE fastwire_tables SET format = 2")
    with pytest.raises(
        DatasetMismatchError, match="is recorded in format 2, and this version of fastwire knows format 1"
    ):
        shop.sink(ORDER)
