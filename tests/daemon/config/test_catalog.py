"""The catalog of an Iceberg table in a configuration: its settings, and what is refused."""

import json
from pathlib import Path

import pytest

from fastwire_daemon.cli.stores import catalog_at
from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.config.sinks.catalog import catalog_of

TEXT = """
[pipelines.orders.source]
url = "pulsar://127.0.0.1:6650"
topics = ["orders"]
subscription = "landing"
start = "earliest"

[pipelines.orders.sink]
type = "iceberg"
catalog = { type = "rest", uri = "http://127.0.0.1:8181", warehouse = "lake", token = "hidden" }
table = "shop.orders"
path = "/data/orders"
"""


def test_the_settings_of_a_catalog() -> None:
    sink = parse_config(TEXT, {}).pipelines["orders"].sink
    assert sink.table_format == "iceberg" and sink.is_dataset
    assert "hidden" not in repr(sink)
    assert catalog_of(sink) == {
        "type": "rest",
        "uri": "http://127.0.0.1:8181",
        "warehouse": "lake",
        "name": "default",
        "token": "hidden",
        "table": "shop.orders",
    }


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('table = "shop.orders"\n', "", "sink.table: is required"),
        ('"shop.orders"', '"orders"', "sink.table: must be a namespace and a name"),
        ('"iceberg"', '"delta"', 'sink.catalog: is for type = "iceberg"'),
        ('type = "iceberg"', 'type = "delta"\nbranch = "audit"', 'sink.branch: is for type = "iceberg"'),
        ('"shop.orders"', '"shop.orders"\nbranch = "a b"', "sink.branch: must be a name"),
        ('type = "rest"', 'type = "sql"', 'sink.catalog.token: is for type = "rest"'),
        ("http://127", "http://me:secret@127", "sink.catalog.uri: has a password"),
        ('uri = "http://127.0.0.1:8181", ', "", "sink.catalog.uri: is required"),
        ('type = "rest"', 'type = "hive"', "sink.catalog.type: "),
        ('"/data/orders"', '"az://lake/orders"', "sink.store.account_name: is required"),
        ('"/data/orders"', '"/data/orders#1"', 'sink.path: has a "#"'),
    ],
)
def test_what_is_refused(was: str, now: str, said: str) -> None:
    assert was in TEXT
    with pytest.raises(ConfigError) as error:
        parse_config(TEXT.replace(was, now), {})
    assert said in str(error.value) and "secret" not in str(error.value)


def test_the_branch_of_a_table() -> None:
    sink = parse_config(TEXT.replace('"shop.orders"', '"shop.orders"\nbranch = "audit"'), {}).pipelines["orders"].sink
    assert catalog_of(sink)["branch"] == "audit"


@pytest.mark.parametrize(
    ("place", "store"),
    [
        ("s3://lake/orders", 'region = "eu-west-1"'),
        ("az://lake/orders", 'account_name = "lake"'),
        ("gs://lake/orders", 'service_account = "/etc/fastwire/gcs.json"'),
    ],
)
def test_the_files_may_be_in_any_store(place: str, store: str) -> None:
    text = TEXT.replace('"/data/orders"', f'"{place}"') + f"[pipelines.orders.sink.store]\n{store}\n"
    assert str(parse_config(text, {}).pipelines["orders"].sink.path) == place


GLUE = (
    'type = "glue", region = "eu-west-1", catalog_id = "123456789012", access_key_id = "me", '
    'secret_access_key = "hidden"'
)


def test_the_settings_of_glue() -> None:
    sink = parse_config(of_glue("shop.orders", GLUE), {}).pipelines["orders"].sink
    assert "hidden" not in repr(sink)
    assert catalog_of(sink) == {
        "type": "glue",
        "name": "default",
        "region": "eu-west-1",
        "catalog_id": "123456789012",
        "access_key_id": "me",
        "secret_access_key": "hidden",
        "table": "shop.orders",
    }


def test_all_that_is_refused_is_said_at_once() -> None:
    wrong = 'type = "glue", warehouse = "w", token = "secret", scope = "s", password = "secret", access_key_id = "me"'
    with pytest.raises(ConfigError) as error:
        parse_config(of_glue("lake.Shop.orders", wrong), {})
    assert sorted(str(error.value).replace("pipelines.orders.sink.", "").splitlines()) == [
        "configuration:10: catalog.access_key_id: secret_access_key is missing",
        'configuration:10: catalog.password: is for type = "sql"',
        'configuration:10: catalog.scope: is for type = "rest"',
        'configuration:10: catalog.token: is for type = "rest"',
        'configuration:10: catalog.warehouse: is for type = "rest" and "sql"',
        'configuration:11: table: must be a database, in small letters, and a name: "shop.orders"',
    ]
    with pytest.raises(ConfigError) as error:
        parse_config(TEXT.replace('type = "rest"', 'type = "rest", region = "r", session_token = "secret"'), {})
    assert [problem.message for problem in error.value.problems] == ['is for type = "glue", or "rest" with sigv4'] * 2


def test_the_settings_of_a_catalog_that_wants_signed_requests() -> None:
    signed = (
        'type = "rest", uri = "https://glue.eu-west-1.amazonaws.com/iceberg", warehouse = "123456789012", '
        'sigv4 = "glue", region = "eu-west-1"'
    )
    key = ', access_key_id = "me", secret_access_key = "hidden", session_token = "hidden"'
    sink = parse_config(of_glue("shop.orders", signed + key), {}).pipelines["orders"].sink
    assert "hidden" not in repr(sink)
    found = catalog_of(sink)
    assert (found["sigv4"], found["region"], found["session_token"]) == ("glue", "eu-west-1", "hidden")
    wrong = signed.replace(', region = "eu-west-1"', ', token = "secret", scope = "s", access_key_id = "me"')
    with pytest.raises(ConfigError) as error:
        parse_config(of_glue("shop.orders", wrong), {})
    assert sorted(str(error.value).replace("pipelines.orders.sink.", "").splitlines()) == [
        "configuration:10: catalog.access_key_id: secret_access_key is missing",
        "configuration:10: catalog.region: is required: sigv4 signs it",
        "configuration:10: catalog.scope: cannot be used with sigv4: requests are signed instead",
        "configuration:10: catalog.token: cannot be used with sigv4: requests are signed instead",
    ]
    with pytest.raises(ConfigError, match=r'catalog.sigv4: is for type = "rest"'):
        parse_config(of_glue("shop.orders", signed.replace("rest", "sql")), {})


def of_glue(table: str, catalog: str) -> str:
    text = TEXT.replace('type = "rest", uri = "http://127.0.0.1:8181", warehouse = "lake", token = "hidden"', catalog)
    return text.replace('"shop.orders"', f'"{table}"')


def test_the_catalog_of_a_path_is_that_of_the_pipeline_or_job_that_writes_there(tmp_path: Path) -> None:
    job = """
[spark.orders]
source = { dataset = "/landed" }
[spark.orders.output]
format = "iceberg"
catalog = { type = "sql", uri = "sqlite:////catalog.db" }
table = "shop.paid"
path = "/data/paid"
dead_letters = "/bad"
checkpoint = "/checkpoint"
"""
    file = tmp_path / "f.toml"
    file.write_text(TEXT + job)
    found = [catalog_at(path, file) for path in ("/data/orders", "/data/paid", "/data/none")]
    assert [each and each["table"] for each in found] == ["shop.orders", "shop.paid", None]
    assert catalog_at("/data/paid", None) is None


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/data/a%20b", True), ("/data/x%41/orders", True), ("/data/back\\slash", True), ("/data/100%", False),
        ("/data/New York", False), ("s3://bucket/orders", False),
    ],
)  # fmt: skip
def test_paths_that_programs_for_delta_look_for_elsewhere(path: str, refused: bool) -> None:
    source = {"url": "kafka://127.0.0.1", "topics": ["orders"], "group": "g", "start": "earliest"}
    text = "[pipelines.orders.source]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in source.items())
    text += f"[pipelines.orders.sink]\ntype = \"delta\"\npath = '{path}'\n"
    if refused:
        with pytest.raises(ConfigError, match="take for another path"):
            parse_config(text, {})
    else:
        parse_config(text, {})
