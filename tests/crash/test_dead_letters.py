"""Entries that cannot be decoded: they take no more memory than others, and are kept exactly once, whatever happens."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from fastwire.kafka.producing.payload import Compression
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, encode_payload, encode_single_entry
from fastwire.pulsar.format.payload import Record as PulsarRecord
from fastwire_daemon.dataset.commitlog.deadletterfile import read_dead_letters
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from tests.crash.resident import ROOM_MIB, watch
from tests.real.daemon import Daemon, Job, verify
from tests.support.kafka.bombs import headers_of, value_of

pytestmark = pytest.mark.crash

TOPIC = "persistent://public/default/damaged"
MIB = 1 << 20
UNKNOWN_CODEC = b"\x40\x09\x48\x64"  # MessageMetadata: compression 9, of 100 bytes


def unknown_codecs(count: int, size: int) -> Iterator[Entry]:
    """Entries of ``size`` bytes that no version of ours can decompress."""
    for number in range(count):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        metadata.MergeFromString(UNKNOWN_CODEC)
        yield Entry(encode_payload(metadata, b"x" * size), 1, number, number, 1, batched=False)


def torn_message(count: int, size: int) -> Iterator[Entry]:
    """All parts of a chunked message that is larger than any may be here."""
    for part in range(count):
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, uuid="u")
        metadata.num_chunks_from_msg, metadata.chunk_id = count, part
        metadata.total_chunk_msg_size = count * size
        yield Entry(encode_payload(metadata, b"x" * size), 1, 1, 1, 1, batched=False, chunk=True)


@pytest.mark.parametrize(("entries", "count"), [(unknown_codecs, 50), (torn_message, 30)])
def test_dead_letters_stay_within_the_budget(
    entries: Callable[[int, int], Iterator[Entry]], count: int, tmp_path: Path
) -> None:
    with running(PulsarDevBroker(PulsarOptions(read_ahead=100, max_message_size=5 * MIB))) as broker:
        broker.create_topic(TOPIC, 0)
        broker.append(TOPIC, list(entries(count, 4 * MIB)))
        job = Job(broker.url, TOPIC, tmp_path / "data", daemon={"memory": "64MiB"})
        peak = watch(job.write(tmp_path), job.path).peak
    said = verify(tmp_path / "data")
    assert said.returncode == 0 and f"{count} dead letters" in said.stdout, said.stdout
    assert peak < 64 + ROOM_MIB, f"{peak:.0f} MiB"


def bombs() -> Iterator[bytes]:
    """Batches of 4 to 6 KB that claim 120 MiB, in a value and in headers; two that just fit between them."""
    yield value_of(120 * MIB, Compression.ZSTD)
    yield headers_of(500_000)
    yield headers_of(30_000_000)
    yield value_of(7 * MIB, Compression.ZSTD)
    for _ in range(4):
        yield value_of(120 * MIB, Compression.LZ4)


def test_bombs_stay_within_the_budget(tmp_path: Path) -> None:
    with running(KafkaDevBroker(KafkaOptions())) as broker:
        broker.create_topic("bombs", 1)
        for batch in bombs():
            broker.append("bombs", [batch])
        source = {"subscription_type": None, "group_protocol": "none"}
        job = Job(broker.url, "bombs", tmp_path / "data", source=source, daemon={"memory": "64MiB"})
        peak = watch(job.write(tmp_path), job.path).peak
    said = verify(tmp_path / "data")
    assert said.returncode == 0 and "2 rows in" in said.stdout and "6 dead letters" in said.stdout, said.stdout
    assert peak < 64 + ROOM_MIB, f"{peak:.0f} MiB"


@pytest.mark.parametrize("step", ["files-synced", "entry-linked", "published:0"])
def test_a_dead_letter_is_kept_once_through_a_crash(step: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    with running(PulsarDevBroker(PulsarOptions(read_ahead=100))) as broker:
        broker.create_topic(TOPIC, 0)
        sound = encode_single_entry(PulsarRecord(value=b"v"), producer_name="p", sequence_id=1, publish_time=1)
        broker.append(TOPIC, [sound, *unknown_codecs(3, 100), sound])
        config = Job(broker.url, TOPIC, path).write(tmp_path)
        # The first commit holds first positions only.
        script = {"at": step, "nth": 1 if step == "published:0" else 2, "do": "kill"}
        with Daemon("run", str(config), "--until-end", log=tmp_path / "log", script=script) as daemon:
            assert daemon.wait() == -9, daemon.output
        with Daemon("run", str(config), "--until-end", log=tmp_path / "log") as daemon:
            daemon.wait_done()
    said = verify(path)
    assert said.returncode == 0 and "3 dead letters" in said.stdout, said.stdout
    dead_letters = [
        row
        for file in path.glob("_fastwire/diverted/*.dead")
        for row in read_dead_letters(BytesIO(file.read_bytes())).to_pylist()
    ]
    assert sorted(row["position"].partition(":")[2] for row in dead_letters) == ["1", "2", "3"]
    assert sum(1 for _ in path.glob("*.parquet")) >= 1
