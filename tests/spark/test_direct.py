"""The job over brokers themselves, in one process: the same tables as over what has landed, and the cursor follows."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fastwire.kafka.producing.payload import Record as KafkaRecord
from fastwire.kafka.producing.payload import encode_batch
from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.tank.producing.bundle import encode_values
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.spark.job.run import run_jobs
from fastwire_daemon.spark.job.trial import try_job
from fastwire_daemon.spark.source.options import parse_options
from fastwire_daemon.systems.kafka.config import KafkaConnection, KafkaSparkBrokers
from tests.spark.jobs import Job
from tests.support.spark_scene import SCENES
from tests.support.spark_source import serving

pytestmark = pytest.mark.spark

BASE_MS = 1_767_322_800_000  # 2026-01-02 03:00 UTC


def test_what_a_source_says_is_what_its_options_say() -> None:
    from fastwire_daemon.spark.job.direct import reader_options  # it needs PySpark

    def options(**keys: Any) -> Mapping[str, str]:
        source = KafkaSparkBrokers.model_validate({"url": "kafka://h", "topics": ["t"]} | keys)
        return reader_options(source, streaming=True)

    assert {"clientRack", "topicRefreshIntervalMs"}.isdisjoint(options())
    said = options(rack="eu-1a", client_id="me", isolation="read_uncommitted", metadata_max_age="1m30s")
    found = parse_options(said, streaming=True)
    connection = KafkaConnection.of(found.connection)
    assert (connection.rack, connection.client_id) == ("eu-1a", "me")
    assert (found.own["isolationLevel"], found.refresh_s) == ("read_uncommitted", 90.0)


class PulsarTopic:
    """A topic ``many`` of two partitions; ``put`` returns where in a partition the values are."""

    name = "persistent://public/default/many"
    chosen: Mapping[str, Any] = {"topics": ["many"]}

    def __init__(self, broker: PulsarDevBroker) -> None:
        self.broker = broker
        self.url = broker.url
        broker.create_topic("many", 2)

    def put(self, values: Iterable[bytes], partition: int) -> list[dict[str, Any]]:
        found = put(self.broker, values, f"many-partition-{partition}")
        return [{"ledger": ledger, "offset": entry, "batchIndex": index} for ledger, entry, index in found]

    def grow(self, partitions: int) -> None:
        self.broker.grow_topic("many", partitions)

    def unread(self) -> int:
        """Return the entries that the job's subscription has not acknowledged."""
        return sum(self.broker.backlog(f"many-partition-{index}", "job") for index in range(2))


class KafkaTopic:
    """The same of Kafka."""

    name = "many"
    chosen: Mapping[str, Any] = {"topics_pattern": "man.*"}

    def __init__(self, broker: KafkaDevBroker) -> None:
        self.broker = broker
        self.url = broker.url
        broker.create_topic("many", 2)

    def put(self, values: Iterable[bytes], partition: int) -> list[dict[str, Any]]:
        first = self.broker.ends("many")[partition]
        records = [KafkaRecord(value=value, timestamp=BASE_MS) for value in values]
        self.broker.append("many", [encode_batch(records)], partition)
        return [{"offset": offset} for offset in range(first, first + len(records))]

    def grow(self, partitions: int) -> None:
        self.broker.grow_topic("many", partitions)

    def unread(self) -> int:
        committed = self.broker.offsets("job")
        return sum(end - committed[("many", index)] for index, end in enumerate(self.broker.ends("many")[:2]))


class TankTopic:
    """The same of TANK, whose brokers keep no progress of a job."""

    name = "many"
    chosen: Mapping[str, Any] = {"topics": ["many"], "group": None}

    def __init__(self, broker: TankDevBroker) -> None:
        self.broker = broker
        self.url = broker.url
        broker.create_topic("many", 2)

    def put(self, values: Iterable[bytes], partition: int) -> list[dict[str, Any]]:
        messages = list(values)
        first = self.broker.end_positions("many")[partition].a
        self.broker.append("many", [encode_values(messages, BASE_MS)], partition)
        return [{"offset": offset} for offset in range(first, first + len(messages))]

    def grow(self, partitions: int) -> None:
        self.broker.grow_topic("many", partitions)

    def unread(self) -> int:
        return 0


Topic = PulsarTopic | KafkaTopic | TankTopic


@pytest.fixture(params=sorted(SCENES))
def topic(request: pytest.FixtureRequest) -> Iterator[Topic]:
    if request.param == "pulsar":
        with serving() as broker:
            yield PulsarTopic(broker)
    elif request.param == "kafka":
        with running(KafkaDevBroker()) as kafka:
            yield KafkaTopic(kafka)
            assert kafka.violations == []
    else:
        with running(TankDevBroker()) as tank:
            yield TankTopic(tank)
            assert tank.violations == []


def put(
    broker: PulsarDevBroker, values: Iterable[bytes], topic: str = "t", after_ms: int = 0
) -> list[tuple[int, int, int]]:
    """Store ``values`` as entries of ten; where each is."""
    records = [Record(value=value) for value in values]
    found = []
    for first in range(0, len(records), 10):
        some = records[first : first + 10]
        stored = encode_batch_entry(some, producer_name="p", sequence_id=first, publish_time=BASE_MS + after_ms)
        [(ledger, entry)] = broker.append(topic, [stored])
        found += [(ledger, entry, index) for index in range(len(some))]
    return found


def order(number: int) -> bytes:
    return json.dumps({"order_id": number}).encode()


def over_brokers(folder: Path, url: str, source: dict[str, Any] | None = None, **more: Any) -> Job:
    (folder / "orders.ddl").write_text("order_id BIGINT NOT NULL")
    source = {"url": url, "group": "job", "topics": ["t"]} | (source or {})
    if "topics_pattern" in source:
        del source["topics"]
    if source["group"] is None:
        del source["group"]
    return Job(folder, decode={"format": "json", "schema": folder / "orders.ddl"}, source=source, **more)


def test_from_brokers_into_a_table(
    spark: Any, tmp_path: Path, topic: Topic, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    job = over_brokers(
        tmp_path,
        topic.url,
        {**topic.chosen, "max_records": 40},
        dedupe={"key": ["order_id"], "watermark": "1 hour"},
        output={"partition_by": ["date"]},
    )
    for index in range(2):
        numbers = range(1000 * index, 1000 * index + 50)
        topic.put([*map(order, numbers), *map(order, numbers[:20])], index)
    _, *spoilt = topic.put([order(7), b"{bad", b"{bad"], 1)
    assert run_jobs(spark, job.config()) == 0
    expected = [*range(50), *range(1000, 1050)]
    assert sorted(row["order_id"] for row in job.rows()) == expected
    bad = [{key: row[key] for key in ("topic", "partition", *spoilt[0])} for row in job.rows(job.bad)]
    assert sorted(bad, key=str) == [{"topic": topic.name, "partition": 1, **place} for place in spoilt]
    assert {row["reason"] for row in job.rows(job.bad)} == {"InvalidJson at byte 1 of the value"}
    said = [line for line in lines() if line["event"] == "batch"]
    assert sum(line["rows_in"] for line in said) == 143
    assert sum(line["rows_out"] for line in said) == 100
    assert sum(line["dead_letters"] for line in said) == 2
    assert sum(line["duplicates"] for line in said) == 41
    assert all("lag_seconds" in line for line in said if line["rows_out"])
    behind = [line["behind"] for line in said if line["rows_in"]]
    assert len(behind) > 1
    assert behind[0] == 2
    assert behind[-1] == 0
    assert topic.unread() == 0
    # What comes later, in a topic that has grown meanwhile.
    topic.grow(3)
    topic.put(map(order, range(2000, 2030)), 2)
    topic.put(map(order, range(100, 105)), 0)
    assert run_jobs(spark, job.config()) == 0
    assert sorted(row["order_id"] for row in job.rows()) == sorted([*expected, *range(2000, 2030), *range(100, 105)])
    report = job.verify()
    assert (report.rows, report.filtered) == (135, 2)
    job.verify(job.bad)


def test_a_trial_moves_nothing(spark: Any, tmp_path: Path) -> None:
    with serving() as broker:
        put(broker, [*map(order, range(30)), b"bad"])
        job = over_brokers(tmp_path, broker.url, {"start": "latest"})
        trial = try_job(spark, "orders", job.config().spark["orders"], rows=1000)
        assert (trial.rows, trial.dead_letters) == (31, 1)
        assert not job.table.exists()
        assert not job.checkpoint.exists()
        assert "job" not in broker.subscriptions("t")


def test_start_columns_and_who_we_are(spark: Any, tmp_path: Path) -> None:
    """Rows as they are, from a time on; what says where they are comes in any case."""
    token = tmp_path / "token"
    token.write_text("open-sesame")
    with serving(broker=PulsarDevBroker(PulsarOptions(token="open-sesame"))) as broker:
        put(broker, [b"old"])
        put(broker, [b"new"], after_ms=60_000)
        source = {
            "start": "2026-01-02T03:00:30Z",
            "columns": ["value", "headers"],
            "auth": {"token_file": token},
        }
        job = over_brokers(tmp_path, broker.url, source)
        job.decode = {}
        assert run_jobs(spark, job.config()) == 0
        [row] = job.rows()
        assert set(row) == {"value", "topic", "partition", "offset", "timestamp", "headers", "ledger", "batchIndex"}
        assert row["value"] == b"new"


def test_what_is_wrong_is_said_in_one_line(
    spark: Any, tmp_path: Path, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    with serving() as broker:
        job = over_brokers(tmp_path, broker.url, {"topics": ["elsewhere"]})
        assert run_jobs(spark, job.config()) == 1
        [said] = [line for line in lines() if line["event"] == "query failed"]
        assert said["error"] == "FastwireError: persistent://public/default/elsewhere: there is no such topic"
