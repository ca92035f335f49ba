"""A real Kafka broker with a topic of JSON, of which nothing is known."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.brokers.kafka import KafkaBroker
from tests.support.three_commands import iceberg_table

pytestmark = pytest.mark.broker


def test_three_commands_make_a_typed_table_of_a_topic_of_json(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("orders")
    plain_kafka.create_topic(topic, 3)
    producer = Producer({"bootstrap.servers": plain_kafka.servers, "log_level": 0})
    sent = [
        {"order": i, "price": i / 4, "customer": {"name": f"c{i % 7}"}, "tags": ["a"] * (i % 3)} for i in range(3000)
    ]
    for each in sent:
        producer.produce(topic, json.dumps(each).encode())
    assert producer.flush(60) == 0
    table = iceberg_table(f"kafka://{plain_kafka.servers}", topic, tmp_path)
    landed = table.scan().to_arrow().drop(["_timestamp"]).sort_by("order").to_pylist()
    assert landed == sent
    types = {field.name: str(field.field_type) for field in table.schema().fields}
    assert types["order"] == "long" and types["price"] == "double" and types["_timestamp"] == "timestamptz"
