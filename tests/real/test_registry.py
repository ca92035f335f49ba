"""Values whose schemas a real registry has, registered by its API as producers do."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastwire.kafka.producing.payload import encode_block_batch, encode_values
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from tests.brokers.apicurio import Apicurio
from tests.real.daemon import Daemon, Job, verify
from tests.support.avro import encode
from tests.support.schema_registry import framed

pytestmark = pytest.mark.broker

ADDRESS: dict[str, Any] = {"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}
OLDER: dict[str, Any] = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "int"}]}
NEWER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": ["null", "shop.Address"], "default": None}],
}
PARSED = {**NEWER, "fields": [NEWER["fields"][0], {"name": "to", "type": ["null", ADDRESS], "default": None}]}


def test_values_of_registered_schemas_land(apicurio: Apicurio, tmp_path: Path) -> None:
    apicurio.register("address-value", ADDRESS)
    older = apicurio.register("orders-value", OLDER)
    newer = apicurio.register(
        "orders-value", NEWER, [{"name": "shop.Address", "subject": "address-value", "version": 1}]
    )
    key = apicurio.register("orders-key", "string")
    unknown = newer + 1000
    values = [framed(older, encode(OLDER, {"id": i})) for i in range(10)]
    values += [framed(newer, encode(PARSED, {"id": 1 << 40, "to": {"city": "Köln"}})), framed(unknown, b"\0")]
    schema, key_schema = tmp_path / "order.avsc", tmp_path / "key.avsc"
    schema.write_text(json.dumps(OLDER))
    key_schema.write_text('"string"')
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        block = encode_values(values, [framed(key, encode("string", f"k{i}")) for i in range(len(values))])
        broker.append("orders", [encode_block_batch(block, len(values), base_timestamp=0)])
        job = Job(
            broker.url,
            "orders",
            tmp_path / "data",
            source={"subscription": None, "subscription_type": None, "group": "landing"},
            decode={
                "format": "avro",
                "schema": str(schema),
                "registry": {"url": apicurio.url},
                "keys": {"format": "avro", "schema": str(key_schema)},
                "columns": ["*", "_key"],
            },
        )
        config = tmp_path / "c.toml"
        config.write_text(job.text())
        with Daemon("run", str(config), "--until-end", log=tmp_path / "run.log") as daemon:
            daemon.wait_done()
    landed = [row for file in sorted(job.path.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    landed.sort(key=lambda row: row["id"])
    assert [(row["id"], row.get("to"), row["_key"]) for row in landed] == [
        *((i, None, f"k{i}") for i in range(10)),
        (1 << 40, {"city": "Köln"}, "k10"),
    ]
    report = json.loads(verify(job.path, "--json").stdout)
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 11, 1)
