"""Three real Kafka nodes: leaders move, nodes die and come back, and an unclean election loses records for good."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.brokers.kafka_cluster import KafkaCluster, eventually
from tests.real.daemon import Daemon, Job, ask, verify
from tests.support.sequence_audit import visible_files

pytestmark = [pytest.mark.broker, pytest.mark.soak]

PROTOCOLS = ("classic", "consumer", "none")
ROUNDS = 2  # of three kills each


class Writer:
    """Produces numbered records; ``confirmed`` counts those that the cluster has confirmed."""

    def __init__(self, cluster: KafkaCluster, **settings: Any) -> None:
        said = {key.replace("_", "."): value for key, value in settings.items()}
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.servers,
                "log_level": 0,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                **said,
            }
        )
        self._numbers: Counter[tuple[str, int]] = Counter()
        self.confirmed = 0
        self.failures: list[str] = []

    def write(self, topic: str, partition: int, count: int) -> None:
        for _ in range(count):
            number = self._numbers[topic, partition]
            self._numbers[topic, partition] += 1
            value = f"{topic}:{partition}:{number}"
            self._producer.produce(topic, value=value, partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(120) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self.failures.append(str(error))


class Stream(threading.Thread):
    """Writes to all partitions of a topic, without a pause, until it is ended."""

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.writer = Writer(cluster, enable_idempotence=True, acks="all")
        self._topic = topic
        self._partitions = partitions
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            for partition in range(self._partitions):
                self.writer.write(self._topic, partition, 5)

    def end(self) -> int:
        self._ended.set()
        self.join()
        self.writer.flush()
        assert self.writer.failures == []
        return self.writer.confirmed


def stored(cluster: KafkaCluster, topic: str) -> list[str]:
    """Return the records of a topic, as another client reads them."""
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": "audit", "log_level": 0})
    found: list[str] = []
    try:
        ends: dict[int, int] = {}

        def asked() -> bool:
            """Leaders still move back to their nodes: the one that was asked may lead no more."""
            for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
                _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            return True

        eventually(asked, "the ends of all partitions")
        for partition, end in sorted(ends.items()):
            consumer.assign([TopicPartition(topic, partition, 0)])
            at = 0
            while at < end:
                message = consumer.poll(30)
                assert message is not None and message.error() is None
                found.append((message.value() or b"").decode())
                at = (message.offset() or 0) + 1
    finally:
        consumer.close()
    return found


class Landed:
    """The count of each value in a dataset; files are read once, because they never change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: set[Path] = set()
        self._values: Counter[str] = Counter()

    def values(self) -> Counter[str]:
        for file in visible_files(self._path) if self._path.exists() else ():
            if file not in self._read:
                self._read.add(file)
                found = pyarrow.parquet.read_table(file, columns=["value"])["value"]
                self._values.update(value.decode() for value in found.to_pylist())
        return self._values


class Landing:
    """The daemon with a pipeline for each group protocol, over all topics."""

    def __init__(self, cluster: KafkaCluster, topics: list[str], folder: Path) -> None:
        self.paths = {protocol: folder / protocol for protocol in PROTOCOLS}
        self.landed = {protocol: Landed(path) for protocol, path in self.paths.items()}
        self.socket = folder / "http"
        tables: list[str] = []
        for protocol, path in self.paths.items():
            job = Job(
                cluster.url,
                "",
                path,
                subscription=f"land-{protocol}",
                source={
                    "topics": topics,
                    "subscription_type": None,
                    "group_protocol": protocol,
                    "on_truncation": "continue",
                    "session_timeout": "6s" if protocol == "classic" else None,
                },
                daemon={"http": f"unix:{self.socket}"},
                roll={"idle": "500ms", "age": "1s"},
            )
            text = job.text().replace("pipelines.p.", f"pipelines.{protocol}.")
            tables.append(text if not tables else text[text.index(f"[pipelines.{protocol}") :])
        self.config = folder / "cluster.toml"
        self.config.write_text("\n".join(tables))
        self.log = folder / "log"

    def daemon(self) -> Daemon:
        return Daemon("run", str(self.config), log=self.log)

    def errors(self) -> dict[str, dict[str, str]]:
        """Return the status page's partitions that cannot be read, by pipeline."""
        said = json.loads(ask(self.socket, "/status") or "{}")
        return {name: one["source"]["errors"] for name, one in said.get("pipelines", {}).items() if one["source"]}

    def has(self, topic: str, partition: int, first: int, end: int) -> bool:
        """Return whether all of these records are in all datasets."""
        return self.have({f"{topic}:{partition}:{number}" for number in range(first, end)})

    def have(self, wanted: Iterable[str]) -> bool:
        """Return whether all of these values are in all datasets."""
        wanted = set(wanted)
        return all(wanted <= landed.values().keys() for landed in self.landed.values())


def test_nothing_is_lost_or_doubled_but_what_the_cluster_loses(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    cluster = kafka_cluster
    any_ = cluster.any
    any_.create_topic("steady", replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2, min_insync_replicas="2")
    any_.create_topic("single", replicas=[[1], [2], [3]])
    any_.create_topic("unclean", replicas=[[2, 3]], min_insync_replicas="1", unclean_leader_election_enable="true")
    landing = Landing(cluster, ["steady", "single", "unclean"], tmp_path)
    writer = Writer(cluster, acks=1)
    for partition in range(3):
        writer.write("single", partition, 100)
    writer.write("unclean", 0, 100)
    writer.flush()
    began = time.monotonic()
    said: list[str] = []

    def note(what: str) -> None:
        said.append(f"{time.monotonic() - began:6.1f} s  {what}")
        print(said[-1])

    # A partition without a leader at the start: the others land, and it does when its node is back.
    cluster.kill(3)
    eventually(lambda: cluster.leaders("single")[2] == -1, "a partition without a leader")
    note("node 3 is dead: single-2 has no leader; the daemon starts")
    with landing.daemon() as daemon:
        stream = Stream(cluster, "steady", 6)
        eventually(lambda: landing.has("single", 0, 0, 100) and landing.has("single", 1, 0, 100), "the others landed")
        note("the other partitions of single have landed")
        waiting = {
            name: [key for key in errors if key.startswith("single")] for name, errors in landing.errors().items()
        }
        assert all(len(keys) == 1 and "partition 2" in keys[0] for keys in waiting.values()), waiting
        assert set(waiting) == set(PROTOCOLS)
        cluster.revive(3)
        note("node 3 is back")
        eventually(lambda: landing.has("single", 2, 0, 100), "the last partition landed")
        note("single-2 has landed")

        # Nodes die and come back, the coordinators of the groups among them.
        for turn in range(ROUNDS):
            for node in (1, 2, 3):
                eventually(lambda: all(len(one) == 3 for one in cluster.in_sync("steady")), "all replicas in sync")
                cluster.kill(node)
                wanted_by_now = stream.writer.confirmed + 500
                eventually(lambda: -1 not in cluster.leaders("steady"), "new leaders")
                eventually(lambda more=wanted_by_now: stream.writer.confirmed > more, "records on new leaders")  # type: ignore[misc]
                cluster.revive(node)
                note(f"round {turn}: node {node} was killed, leaders moved, and it is back")

        # An unclean election: the only replica that is alive lacks what the other one has confirmed.
        eventually(lambda: cluster.in_sync("unclean") == [{2, 3}], "both replicas in sync")
        cluster.kill(3)
        eventually(lambda: cluster.leaders("unclean") == [2] and cluster.in_sync("unclean") == [{2}], "node 2 alone")
        writer.write("unclean", 0, 150)
        writer.flush()
        eventually(lambda: landing.has("unclean", 0, 0, 250), "landed, what is going to be lost")
        writer.write("unclean", 0, 50)
        writer.flush()
        cluster.kill(2)
        note("node 2 was killed with 200 records of unclean that node 3 does not have")
        cluster.revive(3)
        eventually(lambda: cluster.leaders("unclean") == [3], "an unclean election")
        later = Writer(cluster, acks=1)
        later._numbers["unclean", 0] = 300
        later.write("unclean", 0, 100)
        later.flush()
        cluster.revive(2)
        note("node 3 leads unclean; node 2 is back, and cuts its log")
        later.write("unclean", 0, 100)
        later.flush()
        assert writer.failures == later.failures == []

        confirmed = stream.end()
        kept = {topic: stored(cluster, topic) for topic in ("steady", "single", "unclean")}
        assert len(kept["steady"]) == confirmed and len(kept["single"]) == 300
        lost = 500 - len(kept["unclean"])
        assert lost >= 150, "the cluster has lost nothing"
        wanted = Counter(value for values in kept.values() for value in values)
        assert set(wanted.values()) == {1}
        eventually(lambda: landing.have(wanted), "everything landed")
        note(f"{len(wanted)} records have landed three times; the cluster has lost {lost} of unclean")
        daemon.end()
    for protocol, path in landing.paths.items():
        found = landing.landed[protocol].values()
        doubled = {value for value, times in found.items() if times > 1}
        gone = {value.partition(":")[0] for value in found.keys() - wanted.keys()}
        assert not doubled, f"{protocol}: {len(doubled)} records landed twice, {sorted(doubled)[:5]}"
        assert not wanted.keys() - found.keys()
        assert gone <= {"unclean"}  # landed before they were lost
        verified = verify(path)
        assert verified.returncode == 0, verified.stdout
        note(f"{protocol}: {found.total()} rows, 0 lost, 0 doubled, {found.total() - len(wanted)} only the dataset has")
