"""A topic as a sink: records, keys, headers and times, receipts, brokers that are away, and the contract of sinks."""

import json
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fastwire.columns.rows import Rows
from fastwire_daemon.cli.check.checks import promise
from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.net.endpoint import ConnectionRefused
from fastwire_daemon.pipeline import topicoutlet
from fastwire_daemon.pipeline.topicchoice import topic_sink
from fastwire_daemon.pipeline.topicoutlet import TopicOutlet
from fastwire_daemon.pipeline.topicsink import TopicSink
from fastwire_daemon.runtime.errors import LogRefusedError, SinkFailedError
from fastwire_daemon.systems.produced import Produced, ProduceError, Refused
from fastwire_daemon.systems.writer import Put, Writer, puts_of
from fastwire_daemon.testing import Feed, SinkConformance
from tests.support.topic_copies import command, copied, daemon, has, problems, produce, run, tail
from tests.support.waiting import eventually


class FileWriter:
    """A topic that is a file of JSON lines. Records are stored by ``flush``."""

    topic = "file"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[Put] = []
        self.produced = Produced()

    async def write(self, put: Put) -> None:
        self._pending.append(put)

    async def write_rows(self, rows: Rows) -> None:
        for put in puts_of(rows):
            await self.write(put)

    async def flush(self) -> None:
        with self._path.open("ab") as file:
            for put in self._pending:
                file.write((put.value or b"") + b"\n")
            os.fsync(file.fileno())
        self.produced.records += len(self._pending)
        self._pending.clear()

    def take_refused(self) -> list[Refused]:
        return []

    def generate(self, load: object) -> AsyncIterator[int]:
        raise NotImplementedError


@asynccontextmanager
async def opened_file(path: Path) -> AsyncIterator[Writer]:
    yield FileWriter(path)


class TestTopicSink(SinkConformance):
    exactly_once: ClassVar[bool] = False
    kills: ClassVar[int] = 2

    def make_sink(self, path: Path) -> TopicSink:
        return TopicSink(TopicOutlet(partial(opened_file, path), "a file"))

    def read_values(self, path: Path) -> list[bytes]:
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


class Scripted(FileWriter):
    """A topic whose calls fail or wait as a test says."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.refused: list[Exception] = []
        self.stuck = threading.Event()

    async def write(self, put: Put) -> None:
        if self.refused:
            raise self.refused.pop()
        await super().write(put)

    async def flush(self) -> None:
        if self.stuck.is_set():
            import asyncio

            await asyncio.Event().wait()
        await super().flush()


def scripted(tmp_path: Path, away: int = 0) -> tuple[TopicSink, Scripted]:
    """Return a sink and its writer, whose broker refuses the first ``away`` connections."""
    writer, left = Scripted(tmp_path / "out"), [ConnectionRefused("127.0.0.1:1 refuses connections")] * away

    @asynccontextmanager
    async def open_writer() -> AsyncIterator[Writer]:
        if left:
            raise ProduceError("orders: no broker") from left.pop()
        writer._pending.clear()
        yield writer

    return TopicSink(TopicOutlet(open_writer, "orders at kafka://a:1")), writer


def test_brokers_that_are_away_are_waited_for_and_the_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topicoutlet, "FIRST_PAUSE_S", 0.2)
    sink, _ = scripted(tmp_path, away=3)
    opening = threading.Thread(target=sink.open)
    opening.start()
    eventually(lambda: sink.waiting == "orders at kafka://a:1 cannot be reached: orders: no broker", "a reason")
    opening.join()
    assert sink.waiting is None
    sink.close()


def test_a_wait_for_brokers_can_be_interrupted(tmp_path: Path) -> None:
    sink, _ = scripted(tmp_path, away=1_000)
    failed: list[SinkFailedError] = []

    def opening() -> None:
        try:
            sink.open()
        except SinkFailedError as exc:
            failed.append(exc)

    thread = threading.Thread(target=opening)
    thread.start()
    eventually(lambda: sink.waiting, "a wait")
    sink.interrupt()
    thread.join()
    assert "the sink was stopped while it waited" in str(failed[0])
    sink.close()


def test_a_writer_that_cannot_be_made_is_an_error() -> None:
    @asynccontextmanager
    async def open_writer() -> AsyncIterator[Writer]:
        raise ValueError("a key that cannot be read")
        yield

    sink = TopicSink(TopicOutlet(open_writer, "orders at kafka://a:1"))
    with pytest.raises(ValueError, match="a key that cannot be read"):
        sink.open()
    sink.close()


def test_a_topic_that_is_refused_is_an_error(tmp_path: Path) -> None:
    @asynccontextmanager
    async def open_writer() -> AsyncIterator[Writer]:
        raise ProduceError("orders: not authorized")
        yield

    sink = TopicSink(TopicOutlet(open_writer, "orders"))
    with pytest.raises(SinkFailedError, match="orders: not authorized"):
        sink.open()
    sink.close()


def test_receipts_that_do_not_come_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topicoutlet, "STALLED_S", 0.0)
    sink, writer = scripted(tmp_path)
    sink.open()
    assert sink.waiting is None  # no call runs
    writer.stuck.set()
    sink.write(Feed().chunk(1))
    committing = threading.Thread(target=pytest.raises, args=(SinkFailedError, sink.commit))
    committing.start()
    eventually(lambda: "orders at kafka://a:1 has confirmed no record for" in (sink.waiting or ""), "a reason")
    sink.interrupt()
    committing.join()
    sink.close()


def test_nothing_is_durable_before_the_receipts(tmp_path: Path) -> None:
    sink, writer = scripted(tmp_path)
    sink.open()
    feed = Feed(partitions=1)
    sink.write(feed.chunk(1))
    first = sink.commit()
    writer.refused = [ProduceError("the broker has refused a batch")]
    with pytest.raises(SinkFailedError, match="orders at kafka://a:1: the broker has refused a batch"):
        sink.write(feed.chunk(1))
    assert sink.open() == first  # what was confirmed stays, what was not comes again
    assert sink.commit() == first
    assert feed.held_bytes == 0
    sink.close()


def test_a_record_without_a_receipt_is_not_committed(tmp_path: Path) -> None:
    sink, writer = scripted(tmp_path)
    sink.open()
    sink.write(Feed(rows=10).chunk(1))
    writer._pending.pop()
    with pytest.raises(SinkFailedError, match="orders at kafka://a:1 has confirmed 9 of 10 records"):
        sink.commit()
    sink.close()


def test_a_record_that_the_system_cannot_store_stops_its_log(tmp_path: Path) -> None:
    sink, writer = scripted(tmp_path)
    sink.open()
    feed = Feed(partitions=2, rows=1)
    writer.refused = [ValueError("no headers")]
    sink.write(feed.chunk(2))
    with pytest.raises(LogRefusedError, match="cannot be written to orders at kafka://a:1: no headers") as caught:
        sink.commit()
    assert [log for log in feed.logs if caught.value.concerns(log)] == feed.logs[:1]
    assert sink.open().logs() == feed.logs[1:]  # the other one is committed
    sink.close()


# --- through brokers

CONFIG = """\
daemon.http = ""
[pipelines.mirror.source]
url = "{source}"
topics = ["{topic}"]
subscription = "mirror"
start = "earliest"
[pipelines.mirror.sink]
type = "{type}"
url = "{url}"
topic = "{target}"
roll.idle = "200ms"
"""


def configured(tmp_path: Path, source: str, kind: str, url: str, topic: str = "orders", target: str = "copy") -> Path:
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(source=source, type=kind, url=url, topic=topic, target=target))
    return config


RECORDS: list[dict[str, Any]] = [
    {"value": "one", "key": "a", "properties": {"n": "1", "m": "ä"}, "event_time": "2026-01-31T12:00:00Z"},
    {"value": {"base64": "/wA="}, "key": {"base64": "/wE="}},
    {"value": None, "key": "a"},
    {"value": "", "event_time": "2026-01-31T12:00:00Z"},
]


@pytest.mark.parametrize("kinds", [("kafka", "pulsar"), ("pulsar", "kafka")])
def test_records_keep_their_keys_headers_and_times(tmp_path: Path, kinds: tuple[str, str]) -> None:
    brokers = {"kafka": KafkaDevBroker, "pulsar": PulsarDevBroker}
    with running(brokers[kinds[0]]()) as source, running(brokers[kinds[1]]()) as target:
        source.create_topic("orders", 1)
        target.create_topic("copy", 3)
        produce(source, "orders", RECORDS)
        config = configured(tmp_path, source.url, kinds[1], target.url)
        checked = command("check", config, "--connect")
        assert f"into     {kinds[1]} topic " in checked
        assert "at least once" in checked
        assert "3 partitions" in checked
        command("run", config, "--until-end")
        given, copied = tail(source, "orders"), tail(target, "copy")
    assert len(copied) == 4
    by_value = {json.dumps(row["value"]): row for row in copied}
    for row in given:
        other = by_value[json.dumps(row["value"])]
        assert (other["key"], other["headers"] or []) == (row["key"], row["headers"] or [])
    partitions = {row["partition"] for row in copied if row["key"] == "a"}
    assert len(partitions) == 1  # both records with the key
    time = "eventTime" if kinds[1] == "pulsar" else "timestamp"
    assert by_value['"one"'][time].startswith("2026-01-31T12:00:00")


def test_times_that_a_topic_cannot_hold_are_counted(tmp_path: Path) -> None:
    from fastwire.kafka.producing.payload import Record, encode_batch

    far = 253402300800000 * 30
    times = {b"far": far, b"early": -1_000, b"none": -1, b"zero": 0}
    with running(KafkaDevBroker()) as source, running(PulsarDevBroker()) as target:
        source.create_topic("orders", 1)
        source.create_topic("copy", 1)
        target.create_topic("copy", 1)
        source.append("orders", [encode_batch([Record(value=name, timestamp=at) for name, at in times.items()])])
        for kind, url in (("kafka", source.url), ("pulsar", target.url)):
            config = configured(tmp_path, source.url, kind, url)
            config.write_text(config.read_text().replace('"mirror"', f'"{kind}"'))
            assert run(config).count("cannot hold some event times") == (kind == "pulsar")
        found = {row["value"]: row["timestamp"] for row in tail(source, "copy")}
        others = {row["value"]: row["eventTime"] for row in tail(target, "copy")}
    assert found["early"] == others["early"] == "1969-12-31T23:59:59.000000Z"
    assert found["zero"] == "1970-01-01T00:00:00.000000Z"
    assert others["zero"] is None  # the number of no time in Pulsar
    assert found["far"] == others["far"] and found["far"].startswith("+")
    assert found["none"].startswith("20")  # the time of writing


def test_header_bytes_survive_in_kafka_and_stop_the_log_for_pulsar(tmp_path: Path) -> None:
    from fastwire.kafka.producing.payload import Record, encode_batch

    with running(KafkaDevBroker()) as source, running(PulsarDevBroker()) as target:
        source.create_topic("orders", 1)
        source.create_topic("copy", 1)
        target.create_topic("copy", 1)
        source.append("orders", [encode_batch([Record(value=b"v", headers=[("h", b"\xff\x00")], timestamp=1)])])
        command("run", configured(tmp_path, source.url, "kafka", source.url), "--until-end")
        assert tail(source, "copy")[0]["headers"] == tail(source, "orders")[0]["headers"]
        config = configured(tmp_path, source.url, "pulsar", target.url)
        config.write_text(config.read_text().replace('subscription = "mirror"', 'subscription = "other"'))
        said = run(config, 1)
    assert "cannot be written to copy at" in said


def test_a_killed_daemon_loses_no_record(tmp_path: Path) -> None:
    values = [str(i) for i in range(5_000)]
    with running(PulsarDevBroker()) as source, running(KafkaDevBroker()) as target:
        source.create_topic("orders", 2)
        target.create_topic("copy", 2)
        produce(source, "orders", [{"value": value, "key": value} for value in values])
        config = configured(tmp_path, source.url, "kafka", target.url)
        with daemon(config):
            eventually(has(target, 1), "the first records")
        produce(source, "orders", [{"value": "last", "key": "last"}])
        run(config)
        assert set(copied(target)) == {*values, "last"}


def test_a_broker_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    values = [str(i) for i in range(5_000)]
    with running(PulsarDevBroker()) as source, running(KafkaDevBroker()) as target:
        source.create_topic("orders", 1)
        target.create_topic("copy", 2)
        config = configured(tmp_path, source.url, "kafka", target.url)
        with daemon(config) as process:
            produce(source, "orders", [{"value": value} for value in values[:2_500]])
            eventually(has(target, 2_500), "the first half")
            target.restart(down_s=2.0)
            produce(source, "orders", [{"value": value} for value in values[2_500:]])
            deadline = time.monotonic() + 60
            while set(copied(target)) != set(values):
                assert time.monotonic() < deadline
                assert process.poll() is None
            process.terminate()
            assert process.wait() == 0


# --- the configuration

SINK = """\
[pipelines.mirror.source]
url = "kafka://127.0.0.1:9092"
topics = ["orders"]
group = "mirror"
start = "earliest"
[pipelines.mirror.sink]
type = "pulsar"
url = "pulsar://127.0.0.1:6650"
topic = "copy"
"""


def test_the_sink_has_the_keys_of_a_connection() -> None:
    text = SINK.replace("pulsar://127.0.0.1:6650", "pulsar+ssl://127.0.0.1:6651")
    config = parse_config(f'{text}auth = {{ token = "secret" }}\ntls = {{ verify = false }}\n', {})
    sink = config.pipelines["mirror"].sink
    assert sink.connection is not None
    assert (sink.connection.system, sink.topic, sink.is_dataset) == ("pulsar", "copy", False)
    assert "at least once" in promise(config.pipelines["mirror"])
    assert "secret" not in repr(config)
    assert "secret" not in config.model_dump_json()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('topic = "copy"', "", "f.toml:6: pipelines.mirror.sink.topic: is required: the name of the topic"),
        ('topic = "copy"', 'topic = ""', "f.toml:9: pipelines.mirror.sink.topic: is empty"),
        ('url = "pulsar://127.0.0.1:6650"\n', "", "f.toml:6: pipelines.mirror.sink.url: is required: the broker"),
        ("pulsar://127.0.0.1:6650", "kafka://127.0.0.1:1", 'f.toml:8: pipelines.mirror.sink.url: is an address of'),
        ("topic =", "writers = 2\ntopic =", "f.toml:9: pipelines.mirror.sink.writers: is for files"),
        ("topic =", 'auth = { user = "a" }\ntopic =', "f.toml:9: pipelines.mirror.sink.auth.user: needs password"),
        ("topic =", "connection = {}\ntopic =", "f.toml:9: pipelines.mirror.sink.connection: unknown key"),
        ("topic =", 'client_id = "x"\ntopic =', "f.toml:9: pipelines.mirror.sink.client_id: "),
        ("topic =", 'batching = "no"\ntopic =', 'f.toml:9: pipelines.mirror.sink.batching: must be "key", "grouped"'),
        ("topic =", 'key_hash = "crc"\ntopic =', 'f.toml:9: pipelines.mirror.sink.key_hash: must be "java" or'),
    ],
)  # fmt: skip
def test_mistakes_have_their_key_and_line(old: str, new: str, expected: str) -> None:
    (only,) = problems(SINK.replace(old, new))
    assert only.startswith(expected)


def test_a_topic_is_not_copied_into_itself() -> None:
    text = SINK.replace("pulsar://127.0.0.1:6650", "kafka://127.0.0.1:9092").replace('"pulsar"', '"kafka"')
    assert problems(text.replace('"copy"', '"orders"')) == [
        "f.toml:9: pipelines.mirror.sink.topic: is a topic of the source: each record would come again"
    ]


@pytest.mark.parametrize(("key", "entries"), [("", 4), ('batching = "mixed"', 1)])
def test_a_batch_for_pulsar_has_the_keys_that_batching_says(key: str, entries: int) -> None:
    with running(PulsarDevBroker()) as broker:
        text = SINK.replace("pulsar://127.0.0.1:6650", broker.url) + key
        sink = topic_sink(parse_config(text, {}).pipelines["mirror"])
        sink.open()
        sink.write(Feed(partitions=2, rows=1).chunk(4))  # its keys are the partitions
        sink.commit()
        sink.close()
        assert len(broker.positions("copy")) == entries


def test_a_codec_that_the_system_lacks_is_refused() -> None:
    config = parse_config(f'{SINK}compression = "gzip"', {})
    with pytest.raises(ConfigError, match="Pulsar has no gzip"):
        topic_sink(config.pipelines["mirror"])
