"""Tables that a daemon lands, as Spark's own connectors of Delta and Iceberg read and rewrite them.

They are for an older Spark than the product's, which is 450 MB more: so ``make soak`` runs this.
"""

import json
import os
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.proof.verify import verify as report_on
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.brokers.maven import BrokerUnavailableError
from tests.crash.conftest import TOPIC
from tests.crash.scene import Scene
from tests.daemon.sinks.test_partitions import ALL, assert_read, land, numbered
from tests.real.daemon import verify
from tests.spark.connectors import run
from tests.stores.catalog import RestCatalog
from tests.support import icebergs
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.soak]

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": ["null", "int"]}],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"]},
    {"name": "paid", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    {"name": "ratio", "type": ["null", "double"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "country", "type": ["null", "string"]},
    {"name": "lines", "type": {"type": "array", "items": LINE}},
    {"name": "tags", "type": {"type": "map", "values": ["null", "int"]}},
]
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
BEGIN = datetime(2026, 8, 1, tzinfo=UTC)
COLUMNS = (
    *("id", "name", "CAST(paid AS STRING)", "ratio", "unix_micros(at)", "CAST(day AS STRING)", "country"),
    *("to_json(lines)", "to_json(tags)", "note", "CAST(dt AS STRING)", "_timestamp IS NOT NULL"),
)
BATCH = 40
SOON = datetime.now(UTC) + timedelta(hours=1)  # later than all snapshots


def order(number: int) -> dict[str, Any]:
    """A value; every third one has nulls wherever it may."""
    some: dict[str, Any] = {
        "name": f"Zoë {number}",
        "paid": f"{number - 20}.{number % 100:02d}",
        "ratio": number / 7,
        "day": str(date(1969, 12, 1) + timedelta(days=number)),
        "country": ("de", "fr/idf", "a=b ü")[number % 3 - 1],
        "note": f"note {number}",
    }
    return {
        "id": number,
        **(dict.fromkeys(some) if number % 3 == 0 else some),
        "at": (BEGIN + timedelta(minutes=15 * number, microseconds=number)).isoformat(),
        "lines": [{"sku": "s", "count": each} for each in range(number % 3)],
        "tags": {"n": number},
    }


def row(number: int, *, noted: bool) -> list[Any]:
    """The row of a value by Spark; ``noted``: it landed when the schema had the column ``note``."""
    value = order(number)
    at = datetime.fromisoformat(value["at"])
    paid = value["paid"]
    if paid is not None:
        paid = f"{int(paid.partition('.')[0])}.{paid.partition('.')[2]}"
    return [
        *(
            number,
            value["name"],
            paid,
            value["ratio"],
            (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1),
        ),
        *(value["day"], value["country"]),
        *(json.dumps(value[name], separators=(",", ":")) for name in ("lines", "tags")),
        *(value["note"] if noted else None, str(at.date()), True),
    ]


class Orders:
    """A topic of orders, which a daemon lands in a table, with a column more from the second run on."""

    def __init__(self, scene: Scene, broker: PulsarDevBroker) -> None:
        self.scene = scene
        self._broker = broker
        self._produced = 0
        scene.job.sink["partition_by"] = [{"column": "country"}, {"column": "at", "by": "day"}]

    def decode(self, *more: dict[str, Any]) -> dict[str, Any]:
        """The decoding by a schema with fields ``more``."""
        schema = self.scene.folder / f"{len(more)}.avsc"
        schema.write_text(json.dumps({"type": "record", "name": "Order", "fields": [*FIELDS, *more]}))
        return {"format": "json", "schema": str(schema), "evolve": "add", "columns": ["*", "_timestamp"]}

    def produce(self) -> None:
        """Add orders to both partitions."""
        values = [json.dumps(order(self._produced + at)).encode() for at in range(BATCH)]
        self._produced += BATCH
        for partition in range(2):
            self._broker.produce(TOPIC, values[partition::2], partition, codec=self._broker.usual_codec)

    def rows(self) -> list[list[Any]]:
        """The rows of all orders so far."""
        return [row(number, noted=number >= BATCH) for number in range(self._produced)]


def in_spark(form: str, place: str, *statements: str, **settings: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows by Spark, which are the same before and after ``statements``, and the results of those."""
    try:
        before, told, after = run(form, place, COLUMNS, statements, **settings)
    except BrokerUnavailableError as reason:
        pytest.skip(str(reason))
    assert sorted(after) == sorted(before)
    return sorted(before, key=lambda each: each[0]), told


def land_and_rewrite(orders: Orders, read: Callable[..., tuple[list[list[Any]], list[list[Any]]]]) -> list[list[Any]]:
    """Land, read, rewrite by ``read(rewrite=True)`` while the daemon runs, and land more; return what Spark told."""
    scene = orders.scene
    orders.produce()
    with scene.run(job={"decode": orders.decode()}) as daemon:
        daemon.wait_done()
    with scene.run(until_end=False, job={"decode": orders.decode(NOTE)}) as daemon:
        for _ in range(3):
            orders.produce()
            scene.wait_until_acknowledged()
        eventually(lambda: not report_on(scene.path).pending, "files in the table, for which a commit waits 2 s")
        rows, told = read(rewrite=True)
        assert rows == orders.rows()
        orders.produce()
        scene.wait_until_acknowledged()
        daemon.end()
    rows, _ = read(rewrite=False)
    assert rows == orders.rows()
    said = verify(scene.path)
    assert said.returncode == 0, said.stdout + said.stderr
    return told


def files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet"))


def test_delta(dev_scene: Callable[..., Scene], dev_broker: PulsarDevBroker) -> None:
    orders = Orders(dev_scene(sink={"type": "delta"}), dev_broker)
    path = orders.scene.path
    gone: list[Path] = []

    def read(*, rewrite: bool) -> tuple[list[list[Any]], list[list[Any]]]:
        before = files(path)
        statements = (f"OPTIMIZE delta.`{path}`", f"VACUUM delta.`{path}` RETAIN 0 HOURS")
        check = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
        found = in_spark("delta", str(path), *(statements if rewrite else ()), **check)
        gone.extend({*before} - {*files(path)})
        return found

    (optimized,), _ = land_and_rewrite(orders, read)
    assert optimized["metrics"]["numFilesRemoved"] == len(gone) > 10


def test_iceberg(dev_scene: Callable[..., Scene], dev_broker: PulsarDevBroker, rest_catalog: RestCatalog) -> None:
    name, catalog, lake = iceberg(rest_catalog)
    orders = Orders(dev_scene(sink={"type": "iceberg", "table": name, "catalog": catalog}), dev_broker)
    path = orders.scene.path
    gone: list[Path] = []

    def read(*, rewrite: bool) -> tuple[list[list[Any]], list[list[Any]]]:
        before = files(path)
        if rewrite:
            (path / "stray.parquet").touch()
            age(path)
        found = in_spark("iceberg", f"lake.{name}", *(upkeep(name) if rewrite else ()), **lake)
        gone.extend({*before} - {*files(path)})
        return found

    (rewritten,), (expired,), strays = land_and_rewrite(orders, read)
    assert rewritten["rewritten_data_files_count"] == expired["deleted_data_files_count"] == len(gone) > 10
    assert [each["orphan_file_location"].rpartition("/")[2] for each in strays] == ["stray.parquet"]


def test_a_branch_of_iceberg_is_published_by_spark(
    dev_scene: Callable[..., Scene], dev_broker: PulsarDevBroker, rest_catalog: RestCatalog
) -> None:
    name, catalog, lake = iceberg(rest_catalog)
    sink = {"type": "iceberg", "table": name, "branch": "audit", "catalog": catalog}
    orders = Orders(dev_scene(sink=sink), dev_broker)
    publish = (
        f"SELECT count(*) AS rows FROM lake.{name}.branch_audit",
        f"CALL lake.system.fast_forward('{name}', 'main', 'audit')",
        f"ALTER TABLE lake.{name} DROP BRANCH audit",
    )
    for turn in range(2):
        orders.produce()
        with orders.scene.run(job={"decode": orders.decode(NOTE)}) as daemon:
            daemon.wait_done()
        before, told, after = run("iceberg", f"lake.{name}", ("id",), publish, **lake)
        assert sorted(before) == [[number] for number in range(turn * BATCH)]
        assert told[0] == [{"rows": (turn + 1) * BATCH}]
        assert sorted(after) == [[number] for number in range((turn + 1) * BATCH)]


def iceberg(rest_catalog: RestCatalog) -> tuple[str, dict[str, str], dict[str, str]]:
    """The name of a new table, and its catalog in a configuration of the daemon and of Spark."""
    catalog = {"type": "rest", "uri": rest_catalog.uri}
    lake = {"": "org.apache.iceberg.spark.SparkCatalog", **{f".{key}": value for key, value in catalog.items()}}
    settings = {f"spark.sql.catalog.lake{key}": value for key, value in lake.items()}
    return f"shop_{uuid.uuid4().hex[:10]}.orders", catalog, settings


def age(path: Path) -> None:
    """Let all files look a week old, so that Spark may delete those that the table does not need."""
    then = time.time() - 7 * 24 * 3600
    for each in path.rglob("*"):
        os.utime(each, (then, then))


def upkeep(name: str) -> tuple[str, ...]:
    """The statements that rewrite all files of a table, forget what was before, and delete what is no part of it."""
    now, before = (f"TIMESTAMP '{each:%Y-%m-%d %H:%M:%S}'" for each in (SOON, SOON - timedelta(days=3)))
    return (
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => {now})",
        f"CALL lake.system.remove_orphan_files(table => '{name}', older_than => {before})",
    )


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_every_value_of_a_partition_is_read(tmp_path: Path, form: str) -> None:
    land(tmp_path, ALL, form)
    place = str(tmp_path) if form == "delta" else icebergs.loaded(tmp_path).metadata_location
    try:
        rows, _, _ = run(form, place, ["id", "city"], [])
    except BrokerUnavailableError as exc:
        pytest.skip(str(exc))
    wanted = numbered(ALL) if form == "iceberg" else {number: value or None for number, value in numbered(ALL).items()}
    assert_read("spark", [(number, city) for number, city in rows], wanted)
