"""An entry that no decoder can read, among sound ones: log, metric and dead letter say how many records it has."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from crc32c import crc32c

from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, encode_payload
from fastwire.wire.writer import encode_varint
from fastwire_daemon.devbroker import kafka, pulsar, tank, tubemq
from fastwire_daemon.devbroker.base import DevBroker
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq.topics import StoredMessage
from tests.daemon.cli.program import Run
from tests.real.daemon import Daemon, verify

COUNT = 20  # records that a head announces
SOUND = [b"sound"] * 3
JUNK = b"\xff" * 50  # which no codec decompresses

CONFIG = """\
[daemon]
http = "127.0.0.1:{port}"
[pipelines.p.source]
url = "{url}"
topics = ["odd"]
{group}
start = "earliest"
[pipelines.p.sink]
type = "parquet"
path = "{path}"
roll = {{ idle = "100ms" }}
"""


def kafka_batch(broker: kafka.KafkaDevBroker) -> None:
    batch = bytearray(encode_batch([Record(value=b"v")] * COUNT, compression=Compression.GZIP)[:61] + JUNK)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    broker.append("odd", [bytes(batch)])


def pulsar_entry(broker: pulsar.PulsarDevBroker) -> None:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, compression=pb.ZSTD)
    metadata.num_messages_in_batch, metadata.uncompressed_size = COUNT, 100
    broker.append("odd-partition-0", [Entry(encode_payload(metadata, JUNK), COUNT, 1, 1, 1, batched=True)])


def tank_bundle(broker: tank.TankDevBroker) -> None:
    broker.append("odd", [b"\x01" + encode_varint(COUNT) + encode_varint(100) + JUNK])


def tubemq_message(broker: tubemq.TubeMQDevBroker) -> None:
    broker.append_stored("odd", [StoredMessage(0, 0, b"v", 0, 1, None)])


class Damage(NamedTuple):
    """A broker of one system, the line of its group, what stores the entry, its records, and the reason."""

    make: Callable[[], DevBroker]
    group: str
    store: Callable[..., None]
    records: int
    reason: str


DAMAGE = {
    "kafka": Damage(kafka.make, 'group = "g"', kafka_batch, COUNT, "DecompressionError"),
    "pulsar": Damage(pulsar.make, 'subscription = "g"', pulsar_entry, COUNT, "DecompressionError"),
    "tank": Damage(tank.make, "", tank_bundle, COUNT, "DecompressionError"),
    "tubemq": Damage(tubemq.make, 'group = "group"', tubemq_message, 1, "ChecksumMismatch"),
}


@pytest.mark.parametrize("system", DAMAGE)
def test_an_undecodable_entry_is_told_with_its_records(
    system: str, run: Run, tmp_path: Path, unused_tcp_port: int
) -> None:
    damage = DAMAGE[system]
    file, path = tmp_path / "odd.toml", tmp_path / "odd"
    with running(damage.make()) as broker:
        file.write_text(CONFIG.format(port=unused_tcp_port, url=broker.url, path=path, group=damage.group))
        broker.create_topic("odd", 1)
        broker.produce("odd", SOUND)
        damage.store(broker)
        broker.produce("odd", SOUND)
        with Daemon("run", str(file), log=tmp_path / "log") as daemon:
            daemon.wait_for_rows(len(SOUND) * 2)
            with urlopen(f"http://127.0.0.1:{unused_tcp_port}/metrics", timeout=30) as answer:
                metrics = answer.read().decode()
            daemon.end()
    lines = [line for line in daemon.events() if line["event"] == "records have become dead letters"]
    [line] = lines
    assert (line["level"], line["reason"]) == ("warning", damage.reason)
    assert (line["dead_letters"], line["records"]) == (1, damage.records)
    assert "odd" in line["topic"] and line["partition"] and line["position"]
    assert any(
        series.startswith("fastwire_source_dead_letters_total{") and series.endswith(" 1.0")
        for series in metrics.splitlines()
    )
    [letter] = [json.loads(text) for text in run("dead", str(path), "--list", "--json")[1].splitlines()]
    assert (letter["reason"].partition(":")[0], letter["rows"]) == (damage.reason, damage.records)
    assert verify(path).returncode == 0
