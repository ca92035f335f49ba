"""Spark reads the datasets of all topics at once, as the docs say."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.fanout_scene import FanOutScene, serving

pytestmark = pytest.mark.spark


def rows_of(frame: Any) -> Counter[tuple[str, bytes]]:
    return Counter((row[0], bytes(row[1])) for row in frame.select("topic", "value").collect())


def produced(scene: FanOutScene) -> Counter[tuple[str, bytes]]:
    values = ((topic, value) for topic, records in scene.produced.items() for _, value in records)
    return Counter(values)


def test_a_glob_reads_all_topics(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with serving("kafka", root) as scene:
        topics = ("orders", "payments", "audit")
        scene.create(*topics, "later")
        for topic in topics:
            scene.produce(topic, 20)
            scene.produce(topic, 10, partition=1)
        asyncio.run(scene.land(scene.config(*topics)))
        frame = spark.read.parquet(f"{root}/*")
        assert rows_of(frame) == produced(scene)
        assert rows_of(spark.read.parquet(f"{root}/audit")).total() == 30

        seen: Counter[tuple[str, bytes]] = Counter()
        stream = spark.readStream.schema(frame.schema).parquet(f"{root}/*")
        query = (
            stream.writeStream.foreachBatch(lambda batch, number: seen.update(rows_of(batch)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            query.processAllAvailable()
            assert seen == produced(scene)
            scene.produce("later", 20)
            scene.produce("audit", 20)
            asyncio.run(scene.land(scene.config(*topics, "later")))
            query.processAllAvailable()
            assert seen == produced(scene)
        finally:
            query.stop()


def test_datasets_with_levels_are_united(spark: Any, tmp_path: Path) -> None:
    with serving("kafka", tmp_path) as scene:
        scene.create("orders", "audit")
        for topic in scene.produced:
            scene.produce(topic, 20)
            scene.produce(topic, 10, partition=1)
        asyncio.run(scene.land(scene.config(sink={"split": "partition"})))
        orders, audit = (spark.read.parquet(str(tmp_path / topic)) for topic in ("orders", "audit"))
        frame = orders.unionByName(audit)
        assert rows_of(frame) == produced(scene)
        assert {row[0] for row in frame.select("p").distinct().collect()} == {0, 1}
