"""``format("fastwire")`` in a real Spark, over the embedded broker."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.spark.session import started
from tests.support.source_pipe import entries
from tests.support.spark_scene import ROWS, SCENES, KafkaScene, Scene, TankScene, serve
from tests.support.spark_source import eventually, serving
from tests.support.tcp_proxy import Proxy

pytestmark = pytest.mark.spark

SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>,ledger:bigint,batchIndex:int>"
)
PLACE = ("topic", "partition", "ledger", "offset", "batchIndex")
NUMBER = "CAST(substring_index(CAST(value AS STRING), ':', 1) AS INT) AS number"


@pytest.fixture
def session(spark: Any) -> Any:
    from fastwire_daemon.spark.register import FastwireSource

    spark.dataSource.register(FastwireSource)
    return spark


@pytest.fixture
def queries() -> Iterator[list[Any]]:
    """Stop the queries that a test has started."""
    started: list[Any] = []
    yield started
    for query in started:
        query.stop()


def options(broker: PulsarDevBroker | Scene, url: str = "", **more: str) -> dict[str, str]:
    basic = {"servers": url or broker.url, "subscribe": "t", "pollTimeoutMs": "20000", "offsetPollIntervalMs": "20"}
    return basic | more


def counted(frame: Any) -> Counter[int]:
    """Count the rows of each entry."""
    return Counter({row[0]: row[1] for row in frame.selectExpr(NUMBER).groupBy("number").count().collect()})


def whole(numbers: range) -> Counter[int]:
    return Counter(dict.fromkeys(numbers, ROWS))


class Stream:
    """A query from the broker into Parquet."""

    def __init__(self, session: Any, folder: Path, queries: list[Any]) -> None:
        self.session = session
        self.folder = folder
        self.queries = queries

    def start(self, given: dict[str, str], **trigger: Any) -> Any:
        frame = self.session.readStream.format("fastwire").options(**given).load()
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / "out"))
        query = started(writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start)
        self.queries.append(query)
        return query

    def run(self, given: dict[str, str]) -> list[int]:
        """Everything that is there; the rows of each batch."""
        query = self.start(given, availableNow=True)
        assert query.awaitTermination(100)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> Any:
        return self.session.read.parquet(str(self.folder / "out"))

    def has(self, numbers: range) -> bool:
        """Return whether these entries have come, each row of them once."""
        if not (self.folder / "out" / "_spark_metadata" / "0").exists():
            return False
        return counted(self.rows()) == whole(numbers)


@pytest.fixture
def stream(session: Any, tmp_path: Path, queries: list[Any]) -> Stream:
    return Stream(session, tmp_path, queries)


def test_a_batch_has_every_row_once_and_the_columns_that_are_promised(session: Any) -> None:
    with serving(200) as broker:
        broker.create_topic("many", 3)
        for index in range(3):
            broker.append(f"many-partition-{index}", entries(1000 * (index + 1), 50))
        given = options(broker, subscribe="t,many", includeHeaders="true", minPartitions="6")
        frame = session.read.format("fastwire").options(**given).load()
        assert frame.schema.simpleString() == SCHEMA
        assert frame.count() == frame.select(*PLACE).distinct().count() == 3500
        assert counted(frame) == whole(range(200)) + sum(
            (whole(range(n, n + 50)) for n in (1000, 2000, 3000)), Counter()
        )
        [row] = frame.where("value = '1007:3'").collect()
        assert (row.topic, row.partition, row.offset, row.batchIndex) == ("persistent://public/default/many", 0, 7, 3)
        assert row.timestamp.timestamp() == 1_700_001_007
        assert (row.key, row.headers, row.timestampType) == (None, None, 0)
        assert row.ledger == broker.positions("many-partition-0")[7][0]
        assert frame.limit(5).count() == 5
        assert {name for name in broker.subscriptions("t") if not name.startswith("fastwire-spark-")} == set()


@pytest.mark.parametrize("kind", [KafkaScene, TankScene])
def test_a_batch_of_numbered_records(session: Any, kind: type[Scene]) -> None:
    with serve(kind(), 200) as scene:
        scene.create("many", 3)
        for index in range(3):
            scene.append(1000 * (index + 1), 50, "many", index)
        given = options(scene, subscribe="t,many", includeHeaders="true", minPartitions="6")
        frame = session.read.format("fastwire").options(**given).load()
        assert frame.schema.simpleString() == SCHEMA.removesuffix(",ledger:bigint,batchIndex:int>") + ">"
        assert frame.count() == frame.select("topic", "partition", "offset").distinct().count() == 3500
        assert counted(frame) == whole(range(200)) + sum(
            (whole(range(n, n + 50)) for n in (1000, 2000, 3000)), Counter()
        )
        [row] = frame.where("value = '1007:3'").collect()
        assert (row.topic, row.partition, row.offset, row.timestampType) == ("many", 0, 73 + scene.first, 0)
        assert row.timestamp.timestamp() == 1_700_001_007
        assert (row.key, row.headers) == (None, None)


@pytest.mark.soak  # tests/daemon/spark/source/datasource has it without Spark
def test_filters_narrow_what_is_read(session: Any) -> None:
    with serving() as broker:
        broker.create_topic("many", 3)
        for index in range(3):
            broker.append(f"many-partition-{index}", entries(1000 * index, 5))
        session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        try:
            given = options(broker, subscribe="many", filterPushdown="true")
            frame = session.read.format("fastwire").options(**given).load().where("partition = 1")
            assert frame.rdd.getNumPartitions() == 1
            assert counted(frame) == whole(range(1000, 1005))
        finally:
            session.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_wrong_options_are_told(session: Any) -> None:
    with serving() as broker:
        with pytest.raises(Exception, match='subscribr: is not an option of this source, did you mean "subscribe"'):
            session.read.format("fastwire").options(**options(broker, subscribr="x")).load().count()


@pytest.mark.parametrize("system", sorted(SCENES))
def test_available_now_in_limited_batches_and_on_from_the_checkpoint(stream: Stream, system: str) -> None:
    with serve(SCENES[system](), 60) as scene:
        given = options(scene, startingOffsets="earliest", maxRecordsPerTrigger="250", **scene.group("spark"))
        batches = stream.run(given)
        assert len(batches) >= 2
        assert stream.has(range(60))
        scene.append(60, 20)
        stream.run(given)
        assert stream.has(range(80))
        if scene.group_option:
            assert scene.unread("spark") == 0


def test_a_stream_follows_what_comes_and_goes(stream: Stream) -> None:
    with serving(10) as broker:
        given = options(
            broker,
            subscribePattern="t.*",
            startingOffsets="earliest",
            subscription="spark",
            topicRefreshIntervalMs="50",
            failOnDataLoss="false",
        )
        del given["subscribe"]
        query = stream.start(given, processingTime="100 milliseconds")
        eventually(lambda: stream.has(range(10)))
        broker.unload("t")
        broker.append("t", entries(10, 5))
        broker.create_topic("t2")
        broker.append("t2", entries(15, 5))
        eventually(lambda: stream.has(range(20)))
        eventually(lambda: broker.backlog("t", "spark") == 0)
        broker.drop_connections()
        broker.delete_topic("t")
        broker.append("t2", entries(20, 5))
        eventually(lambda: stream.has(range(25)))
        assert query.isActive
        query.stop()
        # Whoever minds is told, and the query ends.
        strict = stream.start(given | {"failOnDataLoss": "true"}, processingTime="100 milliseconds")
        with pytest.raises(Exception, match="persistent://public/default/t: does not exist any more"):
            strict.awaitTermination(60)


@pytest.mark.soak  # tests/daemon/spark/source/datasource has it without Spark
def test_what_retention_took_ends_the_query_unless_that_is_allowed(stream: Stream) -> None:
    with serving(20) as broker:
        given = options(broker, startingOffsets="earliest")
        stream.run(given)
        broker.append("t", entries(20, 40))
        broker.trim("t", *broker.positions("t")[40][:2])
        with pytest.raises(Exception, match="where it begins, is gone"):
            stream.run(given)
        stream.run(given | {"failOnDataLoss": "false"})
        assert counted(stream.rows()) == whole(range(20)) + whole(range(40, 60))


def kill_workers(session: Any) -> int:
    """Kill the processes that run tasks in Python; how many there were."""
    java = psutil.Process(session.sparkContext._gateway.proc.pid)
    killed = 0
    for each in java.children(recursive=True):
        try:
            if "pyspark.daemon" in " ".join(each.cmdline()) and not each.children():
                each.kill()
                killed += 1
        except psutil.NoSuchProcess:
            pass  # it had nothing to do any more
    return killed


def test_a_lost_connection_and_a_killed_worker_change_nothing(session: Any) -> None:
    with serving(3000) as broker, Proxy(broker.port) as proxy:
        given = options(broker, url=proxy.url, columns="value,ledger,offset,batchIndex", receiverQueueSize="100")
        frame = session.read.format("fastwire").options(**given).load()
        proxy.cut_in_frame(500)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(counted(frame)))
        thread.start()
        eventually(lambda: proxy.cuts == 1 and proxy.frames >= 1500)
        proxy.stall()
        eventually(lambda: kill_workers(session) > 0)
        proxy.resume()
        thread.join(90)
        assert found == [whole(range(3000))]
