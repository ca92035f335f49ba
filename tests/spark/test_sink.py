"""Writing frames and streams to topics with ``format("fastwire")`` in a real Spark, over the embedded brokers."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark.session import started
from tests.support.spark_scene import SCENES, Scene, serve

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: Any) -> Any:
    from fastwire_daemon.spark.register import FastwireSource

    spark.dataSource.register(FastwireSource)
    return spark


def values(session: Any, scene: Scene, topic: str = "t") -> list[int]:
    frame = session.read.format("fastwire").options(servers=scene.url, subscribe=topic).load()
    return sorted(int(row.value) for row in frame.select("value").collect())


def refused(write: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        write.save()
    return str(caught.value)


@pytest.mark.parametrize("system", SCENES)
def test_a_frame_is_written_and_read_again(session: Any, system: str) -> None:
    with serve(SCENES[system]()) as scene:
        scene.create("many", 3)
        frame = session.range(3000).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
        writer = frame.repartition(4).write.format("fastwire").mode("append").option("servers", scene.url)
        writer.option("topic", "many").save()
        assert values(session, scene, "many") == list(range(3000))
        read = session.read.format("fastwire").options(servers=scene.url, subscribe="many").load()
        placed = read.groupBy("key").agg({"partition": "min", "*": "count"}).collect()
        assert sorted(bytes(row["key"]) for row in placed) == [b"%d" % number for number in range(10)]
        assert {row["count(1)"] for row in placed} == {300}
        assert read.select("key", "partition").distinct().count() == 10  # each key is in one partition
        assert len({row["min(partition)"] for row in placed}) > 1


def test_headers_partitions_and_topics_of_rows(session: Any) -> None:
    with serve(SCENES["kafka"]()) as scene:
        scene.create("many", 3)
        frame = session.sql(
            "SELECT CAST(id AS STRING) AS value, IF(id < 3, 'many', 't') AS topic, CAST(id % 3 AS INT) AS partition, "
            "array(named_struct('key', 'h', 'value', unhex('FF'))) AS headers FROM range(3)"
        )
        frame.write.format("fastwire").mode("append").option("servers", scene.url).save()
        read = (
            session.read.format("fastwire").options(servers=scene.url, subscribe="many", includeHeaders="true").load()
        )
        rows = {int(row.value): row for row in read.collect()}
        assert {number: row.partition for number, row in rows.items()} == {0: 0, 1: 1, 2: 2}
        assert [(each.key, bytes(each.value)) for each in rows[1].headers] == [("h", b"\xff")]


def test_what_cannot_be_written_is_refused(session: Any) -> None:
    with serve(SCENES["kafka"]()) as scene:
        text = session.range(3).selectExpr("CAST(id AS STRING) AS value")
        ready = text.write.format("fastwire").option("servers", scene.url).option("topic", "t")
        assert "topics are not overwritten" in refused(ready.mode("overwrite"))
        wrong = session.range(3).write.format("fastwire").option("servers", scene.url).option("topic", "t")
        message = refused(wrong.mode("append"))
        assert 'column "id": is not written to topics: select key, value' in message
        assert 'column "value": is missing' in message
        options = text.write.format("fastwire").mode("append").option("servers", scene.url).option("topik", "t")
        assert 'topik: is not an option for writing, did you mean "topic"?' in refused(options)
        assert values(session, scene) == []


@pytest.mark.parametrize("system", ["pulsar", "kafka"])
def test_a_stream_is_written_and_goes_on_after_a_restart(session: Any, tmp_path: Path, system: str) -> None:
    with serve(SCENES[system](), 30) as scene:
        scene.create("out", 2)

        def run() -> None:
            frame = session.readStream.format("fastwire").option("servers", scene.url).option("subscribe", "t")
            frame = frame.option("startingOffsets", "earliest").load()
            text = frame.selectExpr("substring_index(CAST(value AS STRING), ':', 1) AS value", "key")
            writer = text.writeStream.format("fastwire").option("servers", scene.url).option("topic", "out")
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            query = started(writer.start)
            assert query.awaitTermination(100)
            assert query.exception() is None

        run()
        assert values(session, scene, "out") == sorted([*range(30)] * 10)
        run()
        scene.append(30, 5)
        run()
        assert values(session, scene, "out") == sorted([*range(35)] * 10)
        # Spark forgets that the last batch is done, as if it had been killed before: at least once.
        commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
        run()
        assert values(session, scene, "out") == sorted([*range(35), *range(30, 35)] * 10)
