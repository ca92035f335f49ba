"""``format("fastwire")`` beside Spark's own Kafka source and sink, with the same real Kafka in the same run.

    python -m bench.spark_kafka [--json] [--rows N]

Eight million records of 100 B in four partitions, the same that ``spark_source`` reads from Pulsar; Spark on two
threads, its JVM in the figures, each way run twice and the second run counts. Spark's own source runs as PySpark 4.0.0
in an environment of its own below ``build/``, made the first time, with the jar that belongs to it; ``scan`` is Spark
counting the same rows in Parquet files, and ``sink`` writes the keys and values of these files to another topic, by
both in LZ4.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .child import ROOT, show, spark_is_here
from .message import Messages
from .spark_source import NARROW, measured_by, session

PARTITIONS = 4
BATCH = 1000
PEER = "4.0.0"
SUNK = "sunk"  # the topic of our sink; the peer has one of its own
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fastwire.bench</groupId><artifactId>spark-kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{PEER}</version>
  </dependency></dependencies>
</project>
"""
# What the package of Spark does not have already.
JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


def fill(url: str, topic: str, rows: int) -> None:
    """Store as many records, a batch a request and partition; batches and their order are those of ``varied_server``.

    They must not repeat sooner: what a Parquet file costs is a matter of what stands in it.
    """
    from fastwire.kafka.names import parse_bootstrap_url
    from fastwire.kafka.producing.payload import encode_block_batch, encode_values
    from fastwire.kafka.protocol.connection import Key
    from fastwire_daemon.systems.kafka.cluster import ClientCluster
    from fastwire_daemon.systems.kafka.settings import ClientSettings

    from .kafka_server import TIME, VARIETY

    source = Messages(100)
    batches = []
    for number in range(VARIETY):
        numbers = range(number * BATCH, (number + 1) * BATCH)
        block = encode_values([source.value(each) for each in numbers], [source.key(each) for each in numbers])
        batches.append(encode_block_batch(block, BATCH, base_timestamp=TIME + number))

    async def store() -> None:
        async with ClientCluster(ClientSettings(url=parse_bootstrap_url(url))) as cluster:
            await cluster.refresh([topic])
            link = await cluster.leader("produce", (topic, 0))
            for turn in range(rows // (BATCH * PARTITIONS)):
                data = [{"index": each, "records": batches[(each + turn) % VARIETY]} for each in range(PARTITIONS)]
                body = {"acks": 1, "topic_data": [{"name": topic, "partition_data": data}]}
                answer = await link.ask(Key.PRODUCE, body)
                if any(one["error_code"] for said in answer["responses"] for one in said["partition_responses"]):
                    raise SystemExit("Kafka has not taken what is to be read")

    asyncio.run(store())


def peer_python() -> Path:
    """An environment with the peer's PySpark."""
    place = ROOT / "build" / f"spark-{PEER}"
    if not (place / ".made").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([place / "bin/pip", "install", "-q", f"pyspark=={PEER}", "psutil"], check=True)
        (place / ".made").touch()
    return place / "bin" / "python"


def peer_jars() -> str:
    """The peer's source, from Maven Central."""
    from tests.brokers.maven import cached_jars

    folder = cached_jars(f"spark-sql-kafka-{PEER}", POM)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")) if jar.name.startswith(JARS))


def ours(url: str, topic: str, rows: int, folder: Path) -> list[dict[str, Any]]:
    spark = session()
    measured = measured_by(spark, rows)
    try:
        frame = spark.read.format("fastwire").option("servers", url).option("subscribe", topic)
        narrow, whole = frame.option("columns", NARROW).load(), frame.load()
        assert narrow.count() == rows
        target = str(folder / "out")
        return [
            measured("fastwire count", NARROW, narrow.count),
            measured("fastwire noop", NARROW, lambda: noop(narrow)),
            measured("fastwire noop", "default", lambda: noop(whole)),
            measured(
                "fastwire parquet zstd",
                NARROW,
                lambda: narrow.write.option("compression", "zstd").mode("overwrite").parquet(target),
            ),
            measured("scan", NARROW, lambda: noop(spark.read.parquet(target))),
            measured("fastwire sink", "key,value", lambda: sink(spark, target, "fastwire", servers=url, topic=SUNK)),
        ]
    finally:
        spark.stop()


def theirs(servers: str, topic: str, rows: int, folder: Path) -> list[dict[str, Any]]:
    """In the process of the peer, which has no more than PySpark and psutil: nothing of ours is imported there."""
    spark = session(fastwire=False, **{"spark.jars": os.environ["PEER_JARS"]})
    measured = measured_by(spark, rows)
    try:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        whole = reader.load()
        assert whole.count() == rows
        narrow = whole.select(*NARROW.split(","))
        target = str(folder / "peer")
        to_kafka = {"kafka.bootstrap.servers": servers, "topic": f"{SUNK}-peer", "kafka.compression.type": "lz4"}
        return [
            measured("kafka count", "all", whole.count),
            measured("kafka noop", NARROW, lambda: noop(narrow)),
            measured("kafka noop", "all", lambda: noop(whole)),
            measured(
                "kafka parquet zstd",
                NARROW,
                lambda: narrow.write.option("compression", "zstd").mode("overwrite").parquet(target),
            ),
            measured("kafka sink", "key,value", lambda: sink(spark, target, "kafka", **to_kafka)),
        ]
    finally:
        spark.stop()


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def sink(spark: Any, files: str, kind: str, **options: str) -> None:
    frame = spark.read.parquet(files).select("key", "value")
    frame.write.format(kind).mode("append").options(**options).save()


def peer(servers: str, topic: str, rows: int, folder: Path) -> list[dict[str, Any]]:
    command = [str(peer_python()), "-m", "bench.spark_kafka", "--peer", servers, topic, str(rows), str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {"PEER_JARS": peer_jars(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Fill, read in both ways, compare."""
    if "--peer" in sys.argv:
        servers, topic, count, place = sys.argv[sys.argv.index("--peer") + 1 :]
        print(json.dumps(theirs(servers, topic, int(count), Path(place))))
        return
    if not spark_is_here("mvn"):
        return
    from tests.brokers.kafka import KafkaBroker

    rows = int(sys.argv[sys.argv.index("--rows") + 1]) if "--rows" in sys.argv else 8_000_000
    folder = Path(tempfile.mkdtemp(prefix="fastwire-bench-"))
    broker = KafkaBroker(folder / "kafka")
    try:
        (folder / "kafka").mkdir()
        broker.start()
        for topic in ("bench", SUNK, f"{SUNK}-peer"):
            broker.create_topic(topic, PARTITIONS)
        fill(broker.url, "bench", rows)
        figures = [
            *ours(broker.url, "bench", rows, folder),
            *peer(broker.servers, "bench", rows, folder),
        ]
        by_way = {(each["way"], each["columns"]): each for each in figures}
        for way, columns in (("count", "all"), ("noop", NARROW), ("parquet zstd", NARROW), ("sink", "key,value")):
            own, other = (
                by_way[f"fastwire {way}", NARROW if way == "count" else columns],
                by_way[f"kafka {way}", columns],
            )
            own["times"] = round(own["rows_per_s"] / other["rows_per_s"], 2)
        show([{"bench": "spark_kafka", **each} for each in figures])
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
