"""From a real Kafka into an Iceberg table: the daemon beside Iceberg's own sink for Kafka Connect, from the same topic.

    python -m bench.connect_iceberg [--json] [--rows N]

Both write a column of bytes, the value of the record, as Parquet (zstd:3) into folders, and commit to a REST catalog.
Kafka Connect runs standalone with one task. CPU and memory are those of all processes of either side, from the start to
the commit of the last record; ``cpu_us_per_record`` is without what the same takes for a hundredth of the records, so
without the start.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from pyiceberg.catalog import load_catalog

from tests.brokers.kafka import VERSION as KAFKA
from tests.brokers.kafka import KafkaBroker
from tests.brokers.maven import BrokerUnavailableError, cached_jars, dependency, java_executable, pom
from tests.brokers.ports import free_ports
from tests.stores.catalog import VERSION as ICEBERG
from tests.stores.catalog import RestCatalog

from .child import ROOT, show
from .spark_kafka import BATCH, PARTITIONS, fill

ROWS = 2_000_000
PATIENCE_S = 600.0
EVERY_S = 0.1
CONNECT = (
    ("org.apache.kafka:connect-runtime", KAFKA),
    ("org.apache.kafka:connect-transforms", KAFKA),
    ("org.slf4j:slf4j-simple", "1.7.36"),
)
# The sink has libraries of other versions, and so a folder of its own.
SINK = (
    ("org.apache.iceberg:iceberg-kafka-connect", ICEBERG),
    ("org.apache.iceberg:iceberg-parquet", ICEBERG),
    ("org.apache.iceberg:iceberg-orc", ICEBERG),  # without a file of it, its classes are looked at
    ("org.apache.hadoop:hadoop-client-api", "3.4.2"),
    ("org.apache.hadoop:hadoop-client-runtime", "3.4.2"),
)
WORKER = """
bootstrap.servers={servers}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename={folder}/offsets
plugin.path={folder}/plugins
plugin.discovery=service_load
consumer.auto.offset.reset=earliest
consumer.max.poll.records=5000
"""
CONNECTOR = """
name={topic}
connector.class=org.apache.iceberg.connect.IcebergSinkConnector
tasks.max=1
topics={topic}
transforms=hoist
transforms.hoist.type=org.apache.kafka.connect.transforms.HoistField$Value
transforms.hoist.field=value
iceberg.tables={table}
iceberg.tables.auto-create-enabled=true
iceberg.tables.auto-create-props.write.parquet.compression-level=3
iceberg.catalog.type=rest
iceberg.catalog.uri={catalog}
iceberg.catalog.io-impl=org.apache.iceberg.hadoop.HadoopFileIO
iceberg.control.topic=control-{topic}
iceberg.control.commit.interval-ms=2000
iceberg.kafka.bootstrap.servers={servers}
"""
DAEMON = """
[daemon]
http = ""

[pipelines.bench.source]
url = "{url}"
topics = ["{topic}"]
group = "daemon-{topic}"
start = "earliest"

[pipelines.bench.sink]
type = "iceberg"
columns = ["value"]
catalog = {{ type = "rest", uri = "{catalog}" }}
table = "{table}"
path = "{folder}/dataset"
compression = "zstd:3"
roll = {{ age = "2s", idle = "1s" }}
"""


def jars() -> list[Path]:
    """Return the folders with the jars of Kafka Connect and of the sink. Raises BrokerUnavailableError."""
    found = []
    for name, version, wanted in (("kafka-connect", KAFKA, CONNECT), ("iceberg-sink", ICEBERG, SINK)):
        dependencies = "".join(dependency(each, of) for each, of in wanted)
        found.append(cached_jars(f"{name}-{version}", pom(name, dependencies)))
    return found


class Side:
    """One of the two: the command that lands a topic in a table, written into a folder."""

    def __init__(self, who: str, broker: KafkaBroker, catalog: RestCatalog) -> None:
        self.who = who
        self._broker = broker
        self._catalog = catalog

    def command(self, topic: str, table: str, folder: Path) -> list[str]:
        """Write the configuration, and return the command."""
        facts = {"servers": self._broker.servers, "url": self._broker.url, "catalog": self._catalog.uri}
        facts |= {"topic": topic, "table": table, "folder": str(folder), "port": str(free_ports(1)[0])}
        names = ("daemon.toml",) if self.who == "fastwire" else ("connect-standalone.properties", "sink.properties")
        texts = (DAEMON,) if self.who == "fastwire" else (WORKER, CONNECTOR)
        files = []
        for name, text in zip(names, texts, strict=True):
            file = folder / name
            file.write_text(text.format(**facts), encoding="utf-8")
            files.append(str(file))
        if self.who == "fastwire":
            return [sys.executable, "-m", "fastwire_daemon.cli", "run", *files]
        self._broker.create_topic(f"control-{topic}", 1)
        connect, sink = jars()
        (folder / "plugins").mkdir()
        (folder / "plugins" / "iceberg").symlink_to(sink)
        # The memory that Kafka's own script gives.
        java = [java_executable(), "-Xms256M", "-Xmx2G", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return [*java, "-cp", f"{connect}/*", "org.apache.kafka.connect.cli.ConnectStandalone", *files]

    def rows(self, table: str) -> int:
        """Return the number of rows in the table."""
        namespace, _, name = table.partition(".")
        try:
            with urllib.request.urlopen(f"{self._catalog.uri}/v1/namespaces/{namespace}/tables/{name}") as answer:
                metadata = json.load(answer)["metadata"]
        except urllib.error.HTTPError:
            return 0
        found = {each["snapshot-id"]: each["summary"] for each in metadata.get("snapshots", [])}
        summary = found.get(metadata.get("current-snapshot-id"), {})
        return int(summary.get("total-records", 0))


def measure(side: Side, topic: str, rows: int, folder: Path) -> dict[str, float]:
    """Land a topic; return seconds, CPU in seconds, and the peak of memory in MiB."""
    folder.mkdir()
    table = f"bench.{side.who.replace(' ', '_').lower()}_{topic}"
    command = side.command(topic, table, folder)
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    seen = psutil.Process(process.pid)
    peak, cpu = 0, 0.0
    try:
        for turn in range(round(PATIENCE_S / EVERY_S)):
            time.sleep(EVERY_S)
            try:
                tree = [seen, *seen.children(recursive=True)]
                peak = max(peak, sum(each.memory_info().rss for each in tree))
                cpu = sum(sum(each.cpu_times()[:2]) for each in tree)
            except psutil.NoSuchProcess:
                pass
            # A task of Kafka Connect that has failed does not end the process.
            if process.poll() is not None or b"Task is being killed" in (folder / "log").read_bytes():
                raise SystemExit(f"{side.who} ended: {(folder / 'log').read_text()[-3000:]}")
            if turn % 5 == 0 and side.rows(table) >= rows:
                break
        else:
            raise SystemExit(f"{side.who} has landed {side.rows(table)} of {rows} records: {folder / 'log'}")
        seconds = time.monotonic() - began
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # a worker of Kafka Connect may never end; its table tells what it has landed
            process.kill()
            process.wait()
    assert side.rows(table) == rows, "each record is in the table once"
    return {"seconds": seconds, "cpu_s": cpu, "peak_rss_mib": peak / 2**20}


def compare(sides: Sequence[Side], topics: Sequence[tuple[str, int]], folder: Path) -> list[dict[str, Any]]:
    """Return a row for each side; the last topic counts, and the first one is what a start takes."""
    rows: list[dict[str, Any]] = []
    for side in sides:
        few, many = (measure(side, topic, count, folder / f"{side.who}-{topic}") for topic, count in topics)
        more = topics[1][1] - topics[0][1]
        row: dict[str, Any] = {
            "bench": "connect_iceberg",
            "who": side.who,
            "records": topics[1][1],
            "cpu_us_per_record": round((many["cpu_s"] - few["cpu_s"]) / more * 1e6, 3),
            "cpu_s": round(many["cpu_s"], 1),
            "start_cpu_s": round(few["cpu_s"], 1),
            "seconds": round(many["seconds"], 1),
            "peak_rss_mib": round(many["peak_rss_mib"]),
        }
        first = rows[0] if rows else row
        for name, what in (("cpu_us_per_record", "cpu"), ("start_cpu_s", "start"), ("seconds", "seconds")):
            row[f"times_our_{what}"] = round(row[name] / first[name], 1)
        row["times_our_rss"] = round(row["peak_rss_mib"] / first["peak_rss_mib"], 1)
        rows.append(row)
    return rows


def main() -> None:
    """Fill the topics, land them by both, and compare."""
    count = int(sys.argv[sys.argv.index("--rows") + 1]) if "--rows" in sys.argv else ROWS
    each = BATCH * PARTITIONS
    topics = [("few", max(1, count // 100 // each) * each), ("many", count // each * each)]
    folder = Path(tempfile.mkdtemp(prefix="fastwire-bench-"))
    broker, catalog = KafkaBroker(folder / "kafka"), RestCatalog(folder / "catalog", "http://127.0.0.1:1")
    try:
        try:
            broker.start()
            catalog.start()
            sides = [Side(who, broker, catalog) for who in ("fastwire", "Kafka Connect")]
            jars()
        except BrokerUnavailableError as reason:
            print(f"nothing is measured: {reason}", file=sys.stderr)
            return
        load_catalog("default", type="rest", uri=catalog.uri).create_namespace_if_not_exists("bench")
        for topic, rows in topics:
            broker.create_topic(topic, PARTITIONS)
            fill(broker.url, topic, rows)
        show(compare(sides, topics, folder))
    finally:
        catalog.stop(at_once=True)
        broker.stop(at_once=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
