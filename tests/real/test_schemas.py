"""Schemas that the official client has registered, shown by their versions."""

from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, String

from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon
from tests.real.matrix import quiet_client

pytestmark = pytest.mark.broker


class Order(Record):  # type: ignore[misc]
    item = String(required_default=True)


class OrderOfMore(Record):  # type: ignore[misc]
    _avro_name = "Order"  # a new version keeps the name
    item = String(required_default=True)
    count = Integer(required_default=True)


def test_each_version_is_asked_for(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("schemas")
    plain_pulsar.admin.create_topic(topic)
    client: pulsar.Client = quiet_client(plain_pulsar.service_url)
    for schema, record in ((Order, Order(item="tea")), (OrderOfMore, OrderOfMore(item="milk", count=2))):
        producer = client.create_producer(topic, schema=JsonSchema(schema))
        producer.send(record)
        producer.close()
    client.close()
    asked = ("tail", plain_pulsar.service_url, topic, "--from", "earliest", "--until-end", "--schemas")
    with Daemon(*asked, log=tmp_path / "tail.log") as daemon:
        daemon.wait_done()
    said = daemon.output
    place = f"of public/default/{topic}: JSON"
    assert f"schema 0 {place}" in said, said
    assert f"schema 1 {place}" in said, said
    first, second = (text.splitlines()[1] for text in said.split(f"{place}")[1:])
    assert '"item"' in first and '"count"' not in first
    assert '"item"' in second and '"count"' in second
    assert "tea" in said and "milk" in said
