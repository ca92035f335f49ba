"""A dataset for each topic as tables, and in an object store."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import open_bucket
from tests.support.fanout_scene import FanOutScene, serving
from tests.support.s3_server import new_bucket, s3_server

TOPICS = ("shop.orders", "shop.payments", "Audit")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[FanOutScene]:
    with serving("kafka", tmp_path / "lake") as scene:
        scene.create(*TOPICS)
        for topic in TOPICS:
            scene.produce(topic, 30)
            scene.produce(topic, 12, partition=1)
        yield scene


async def test_each_topic_is_a_table_of_iceberg(scene: FanOutScene, tmp_path: Path) -> None:
    pyiceberg = pytest.importorskip("pyiceberg.catalog.sql")
    uri = f"sqlite:///{tmp_path}/catalog.db"
    sink: dict[str, Any] = {"type": "iceberg", "table": "raw.{topic}", "catalog": {"type": "sql", "uri": uri}}
    await scene.land(scene.config(sink=sink))
    scene.assert_whole()
    catalog = pyiceberg.SqlCatalog("default", uri=uri)
    assert sorted(catalog.list_tables("raw")) == [("raw", "audit"), ("raw", "shop_orders"), ("raw", "shop_payments")]
    for topic in TOPICS:
        rows = catalog.load_table(f"raw.{topic.lower().replace('.', '_')}").scan().to_arrow()
        values = Counter(zip(rows["partition"].cast("string").to_pylist(), rows["value"].to_pylist(), strict=True))
        assert values == scene.produced[topic]


async def test_each_topic_is_a_table_of_delta(scene: FanOutScene) -> None:
    deltalake = pytest.importorskip("deltalake")
    await scene.land(scene.config(sink={"type": "delta"}))
    scene.assert_whole()
    for topic in TOPICS:
        rows = deltalake.DeltaTable(scene.root / topic).to_pyarrow_table()
        assert Counter(rows["value"].to_pylist()) == Counter(value for _, value in scene.produced[topic].elements())


async def test_datasets_in_a_store(scene: FanOutScene, tmp_path: Path) -> None:
    with s3_server() as settings:
        root = new_bucket(settings, tmp_path.name).url.removesuffix("/orders")
        store = {**settings, "allow_http": True}
        config = scene.config(sink={"path": f"{root}/{{topic}}", "store": store})
        await scene.land(config)
        for topic in TOPICS:
            scene.produce(topic, 5)
        await scene.land(config)
        for topic in TOPICS:
            bucket = open_bucket(f"{root}/{topic}", settings)
            report = verify(f"{root}/{topic}", medium=bucket)
            assert (report.rows, report.problems) == (47, [])
