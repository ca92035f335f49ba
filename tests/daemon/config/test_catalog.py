"""The catalog of an Iceberg table in a configuration: its settings, and what is refused."""

import pytest

from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.sinks.registry import catalog_of

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
        ('type = "rest"', 'type = "sql"', 'sink.catalog.token: is for type = "rest"'),
        ("http://127", "http://me:secret@127", "sink.catalog.uri: has a password"),
        ('"/data/orders"', '"az://lake/orders"', "sink.path: is for other sinks"),
        ('"/data/orders"', '"/data/orders#1"', 'sink.path: has a "#"'),
    ],
)
def test_what_is_refused(was: str, now: str, said: str) -> None:
    assert was in TEXT
    with pytest.raises(ConfigError) as error:
        parse_config(TEXT.replace(was, now), {})
    assert said in str(error.value) and "secret" not in str(error.value)
