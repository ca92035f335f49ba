"""Chunked, encrypted and delayed messages and tombstones, from the official client by way of a real broker."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.parquet as pq
import pytest

from fastwire.pulsar.format.payload import Record, encode_chunks, split_payload
from fastwire.pulsar.reading.assembly import RETURN_S
from tests.brokers.fixtures import running
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon, Job, verify
from tests.real.matrix import quiet_client
from tests.real.raw import RawProducer
from tests.support.rsa_keys import key_pair
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

MESSAGE_BYTES = 1 << 18
TIME = 1_700_000_000_000
# What is compared: everything that the client lets us choose, and the identity that it tells.
FIELDS = ("key", "value", "headers", "eventTime", "orderingKey", "ledger", "offset", "batchIndex")


@pytest.fixture(scope="module")
def small_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """A broker that takes messages of 256 KiB.

    The official client fills a part up to the limit, and with the entry metadata of our brokers a part of the usual
    5 MiB is more than a bookie stores.
    """
    broker = PulsarBroker(tmp_path_factory.mktemp("pulsar-small"), settings={"maxMessageSize": str(MESSAGE_BYTES)})
    yield from running(broker)


@pytest.fixture
def topic(small_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> str:
    """A topic without partitions that nobody else knows."""
    name = f"persistent://public/default/{fresh_name('kinds')}"
    small_pulsar.admin.create_topic(name, 0)
    return name


def land(job: Job, folder: Path) -> list[dict[str, Any]]:
    """Run the daemon to the end of the topic; what is in the dataset then."""
    with Daemon("run", str(job.write(folder)), "--until-end", log=folder / "run.log") as daemon:
        daemon.wait_done()
    said = verify(job.path)
    assert said.returncode == 0, said.stdout + said.stderr
    rows: list[dict[str, Any]] = pq.read_table(job.path, partitioning=None).to_pylist()
    assert not list((job.path / "_fastwire").glob("diverted/*.dead"))
    return rows


class Sender:
    """Sends with one official producer, and remembers what each row has to be."""

    def __init__(self, url: str, topic: str, **options: Any) -> None:
        self.client = quiet_client(url)
        self._producer = self.client.create_producer(topic, **options)
        self.wanted: list[dict[str, Any]] = []

    def send(self, value: bytes | None, key: str | None = None, **more: Any) -> None:
        properties = more.get("properties") or {}
        options = {"partition_key": key, **more} if key is not None else more
        place = self._producer.send(value, **options)
        self.wanted.append(
            {
                "key": None if key is None else key.encode(),
                "value": value,
                "headers": [{"key": name, "value": text.encode()} for name, text in properties.items()] or None,
                "eventTime": more.get("event_timestamp"),
                "orderingKey": more["ordering_key"].encode() if "ordering_key" in more else None,
                "ledger": place.ledger_id(),
                "offset": place.entry_id(),
                "batchIndex": place.batch_index(),
            }
        )

    def compare(self, rows: list[dict[str, Any]]) -> None:
        """All rows, each field that we know."""
        self.client.close()
        found = {(row["ledger"], row["offset"], row["batchIndex"]): row for row in rows}
        assert len(found) == len(rows) == len(self.wanted)
        for wanted in self.wanted:
            row = found[wanted["ledger"], wanted["offset"], wanted["batchIndex"]]
            time = row["eventTime"]
            row["eventTime"] = None if time is None else round(time.timestamp() * 1000)
            for name in FIELDS:
                assert row[name] == wanted[name], (name, wanted["offset"])


CODECS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


def halves(number: int, size: int) -> bytes:
    """Half of it compresses."""
    return random.Random(number).randbytes(size // 2) + b"fastwire" * (size // 16)


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_chunked_messages(small_pulsar: PulsarBroker, topic: str, tmp_path: Path, kind: str) -> None:
    job = Job(small_pulsar.service_url, topic, tmp_path / "data", kind=kind, daemon={"memory": "512MiB"})
    senders = []
    for number, codec in enumerate(CODECS.values()):
        sender = Sender(
            small_pulsar.service_url, topic, compression_type=codec, chunking_enabled=True, batching_enabled=False
        )
        senders.append(sender)
        sender.send(
            halves(number, 3 * MESSAGE_BYTES), key="large", properties={"a": "1"}, event_timestamp=1_700_000_000_123
        )
        sender.send(b"small", key="k", ordering_key="o")
        sender.send(halves(number + 10, 2 * MESSAGE_BYTES + 77), ordering_key="order")
    rows = land(job, tmp_path)
    first, *others = senders
    for other in others:
        first.wanted += other.wanted
        other.client.close()
    first.compare(rows)
    assert small_pulsar.admin.backlog(topic, job.subscription) == 0


def test_parts_that_wait_go_back_to_the_broker(small_pulsar: PulsarBroker, topic: str, tmp_path: Path) -> None:
    """Two daemons hold the first parts of messages for longer than they keep them; then the others come."""
    job = Job(small_pulsar.service_url, topic, tmp_path / "data", kind="shared", roll={"idle": "200ms"})
    values = [halves(number, 2000) for number in range(6)]
    pieces = [
        encode_chunks(
            Record(value=value), chunk_bytes=1100, producer_name="parts", sequence_id=number, publish_time=TIME
        )
        for number, value in enumerate(values)
    ]
    assert all(len(parts) == 2 for parts in pieces)
    config = str(job.write(tmp_path))
    with ExitStack() as stack:
        producer = stack.enter_context(RawProducer(small_pulsar.service_url, topic, name="parts"))
        for name in ("one.log", "other.log"):
            stack.enter_context(Daemon("run", config, log=tmp_path / name)).wait_for("connected")
        for part in (0, 1):
            for each in pieces:
                metadata, payload = split_payload(each[part].body)
                producer.send(metadata, bytes(payload))
            if part == 0:
                time.sleep(RETURN_S[1] + 2)
                told = small_pulsar.admin.stats(topic)["subscriptions"][job.subscription]
                assert told["msgOutCounter"] >= 2 * len(pieces), "each was delivered again"
        eventually(lambda: small_pulsar.admin.backlog(topic, job.subscription) == 0, "all is acked", patience_s=90)
    rows = pq.read_table(job.path, partitioning=None).to_pylist()
    assert sorted(row["value"] for row in rows) == sorted(values)
    assert not list((job.path / "_fastwire").glob("diverted/*.dead"))
    assert verify(job.path).returncode == 0


@pytest.mark.parametrize("kind", ["failover", "key_shared"])
def test_encrypted_messages(small_pulsar: PulsarBroker, topic: str, tmp_path: Path, kind: str) -> None:
    keys = key_pair("orders")
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(keys.public)
    private.write_bytes(keys.private)
    encryption = {"private_keys": {"orders": str(private)}}
    job = Job(small_pulsar.service_url, topic, tmp_path / "data", kind=kind, source={"encryption": encryption})
    common: dict[str, Any] = {
        "encryption_key": "orders",
        "crypto_key_reader": pulsar.CryptoKeyReader(str(public), str(private)),
    }
    senders = []
    for number, codec in enumerate(CODECS.values()):
        single = Sender(small_pulsar.service_url, topic, compression_type=codec, batching_enabled=False, **common)
        single.send(halves(number, 3000), key="k", properties={"a": "1", "b": ""}, event_timestamp=5)
        single.send(b"", key="empty")
        batched = Sender(small_pulsar.service_url, topic, compression_type=codec, batching_enabled=True, **common)
        batched.send(halves(number + 20, 3000), ordering_key="o")
        chunked = Sender(
            small_pulsar.service_url,
            topic,
            compression_type=codec,
            chunking_enabled=True,
            batching_enabled=False,
            **common,
        )
        chunked.send(halves(number + 40, 3 * MESSAGE_BYTES), key="large")
        senders += [single, batched, chunked]
    # Without a key the log stops before the first of them, and says what is missing.
    stopped = Job(small_pulsar.service_url, topic, tmp_path / "none", subscription="no-key", kind=kind)
    with Daemon("run", str(stopped.write(tmp_path)), log=tmp_path / "stopped.log") as daemon:
        daemon.wait_for("source.encryption.private_keys has to name a key")
        daemon.signal(signal.SIGTERM)
        daemon.wait()
    rows = land(job, tmp_path)
    first, *others = senders
    for other in others:
        first.wanted += other.wanted
        other.client.close()
    first.compare(rows)
    assert small_pulsar.admin.backlog(topic, job.subscription) == 0


def test_delayed_messages_and_tombstones(small_pulsar: PulsarBroker, topic: str, tmp_path: Path) -> None:
    # Delays count on Shared only, so the subscription has to be there before them.
    job = Job(small_pulsar.service_url, topic, tmp_path / "data", kind="shared")
    with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "first.log") as daemon:
        daemon.wait_done()
    sender = Sender(small_pulsar.service_url, topic, batching_enabled=False)
    sender.send(b"later", key="k", deliver_after=timedelta(seconds=3))
    sender.send(b"now", key="k")
    sender.send(None, key="gone")
    sender.send(b"", key="empty")
    rows = land(job, tmp_path)
    sender.compare(rows)
    assert small_pulsar.admin.backlog(topic, job.subscription) == 0


def test_a_compacted_topic_is_read_whole(small_pulsar: PulsarBroker, topic: str, tmp_path: Path) -> None:
    """Compaction makes a second copy of the latest values; without asking for that one every message comes."""
    sender = Sender(small_pulsar.service_url, topic, batching_enabled=False)
    for number in range(30):
        sender.send(None if number == 29 else b"v%d" % number, key=f"k{number % 3}")
    small_pulsar.admin.compact(topic)
    job = Job(small_pulsar.service_url, topic, tmp_path / "data")
    sender.compare(land(job, tmp_path))
