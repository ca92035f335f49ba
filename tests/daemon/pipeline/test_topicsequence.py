"""A topic as an exactly-once sink by the deduplication of its brokers: kills, takeovers, other routing."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.pipeline.topicchoice import topic_sink
from fastwire_daemon.pipeline.topicsequence import numbers_of
from tests.daemon.pipeline.test_topicmemory import letters
from tests.support.topic_copies import BROKERS, LARGE, append, command, copied, copied_by_killed_daemons, problems, run

CONFIG = """\
daemon.http = ""
[pipelines.mirror.source]
url = "{source}"
topics = ["orders"]
subscription = "mirror"
start = "earliest"
[pipelines.mirror.sink]
type = "pulsar"
url = "{url}"
topic = "copy"
delivery = "exactly-once"
path = "{path}"
roll.idle = "{idle}"
{more}
"""


@pytest.fixture
def target() -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(PulsarOptions(deduplication=True))) as broker:
        broker.create_topic("copy", 2)
        yield broker


def configured(folder: Path, source: Any, target: Any, *, idle: str = "200ms", more: str = "") -> Path:
    config = folder / "config.toml"
    text = CONFIG.format(source=source.url, url=target.url, path=folder / "memory", idle=idle, more=more)
    config.write_text(text)
    return config


def test_what_was_sent_and_not_committed_is_not_stored_again(
    tmp_path: Path, source: KafkaDevBroker, target: PulsarDevBroker
) -> None:
    source.create_topic("orders", 2)
    config = configured(tmp_path, source, target)
    append(source, 0, "a0", "a1")
    append(source, 1, "b0")
    run(config)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "memory", before)
    append(source, 0, *(f"a{n}" for n in range(2, 20)))
    run(config)
    shutil.rmtree(tmp_path / "memory")
    before.rename(tmp_path / "memory")  # as if the daemon had died before its commit
    source.group("mirror").offsets.clear()
    append(source, 0, "a20")  # in one batch with what is stored
    append(source, 1, "b1")
    run(config)
    assert Counter(copied(target)) == Counter([*(f"a{n}" for n in range(21)), "b0", "b1"])
    assert target.violations == []


def test_brokers_that_have_forgotten_what_they_have_are_told_of(
    tmp_path: Path, source: KafkaDevBroker, target: PulsarDevBroker
) -> None:
    source.create_topic("orders", 1)
    config = configured(tmp_path, source, target)
    append(source, 0, "a0")
    run(config)
    append(source, 0, "a1")
    assert "have forgotten" not in run(config)
    for partition in target.topics.values():
        partition.sequences.clear()
    append(source, 0, "a2")
    assert "have forgotten" in run(config)
    assert copied(target) == ["a0", "a1", "a2"]


@pytest.fixture
def narrow() -> Iterator[PulsarDevBroker]:
    """Brokers with a policy for the size of messages, which they do not tell."""
    with running(PulsarDevBroker(PulsarOptions(deduplication=True, topic_max_message_size=10_000))) as broker:
        broker.create_topic("copy")
        yield broker


def test_a_refused_record_of_a_killed_daemon_is_a_dead_letter_of_the_next_one(
    tmp_path: Path, source: KafkaDevBroker, narrow: PulsarDevBroker
) -> None:
    source.create_topic("orders", 1)
    config = configured(tmp_path, source, narrow, more='compression = "none"')
    append(source, 0, "a0")
    run(config)
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "memory", before)
    append(source, 0, "a1", LARGE, "a2")
    run(config)
    assert len(letters(tmp_path)) == 1
    shutil.rmtree(tmp_path / "memory")
    before.rename(tmp_path / "memory")  # as if the daemon had died before its commit
    source.group("mirror").offsets.clear()
    append(source, 0, "a3")
    run(config)
    assert copied(narrow) == ["a0", "a1", "a2", "a3"]
    assert [letter["position"] for letter in letters(tmp_path)] == ["3"]
    assert narrow.violations == []


def test_records_of_a_batch_that_is_refused_are_stored_though_others_follow(
    tmp_path: Path, source: KafkaDevBroker, narrow: PulsarDevBroker
) -> None:
    source.create_topic("orders", 1)
    values = [f"{n:02}" * 500 for n in range(90)]
    batch = [
        Record(value=value.encode(), key=b"%d" % (n // 30 * 2 + n % 30 // 29), timestamp=1)
        for n, value in enumerate(values)
    ]
    source.append("orders", [encode_batch(batch)])
    run(configured(tmp_path, source, narrow, more='compression = "none"'))
    assert copied(narrow) == values
    assert letters(tmp_path) == [] and narrow.violations == []


@pytest.mark.parametrize("kind", BROKERS)
def test_killed_daemons_write_each_record_once_and_in_order(tmp_path: Path, kind: str, target: PulsarDevBroker) -> None:
    with running(BROKERS[kind]()) as source:
        source.create_topic("orders", 1)
        config = configured(tmp_path, source, target, idle="50ms", more="roll.rows = 400")
        values = [f"{n:05}" for n in range(3_000)]
        assert copied_by_killed_daemons(config, source, target, values, killed=2) == values
    assert target.violations == []


def test_brokers_that_do_not_deduplicate_are_refused(tmp_path: Path, source: KafkaDevBroker) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0", "a1")
    with running(PulsarDevBroker()) as target:
        target.create_topic("copy")
        said = run(configured(tmp_path, source, target), 78)
        assert "do not deduplicate" in said and "set-deduplication" in said


def test_partitions_that_are_added_to_the_topic_get_no_records_and_another_hash_is_refused(
    tmp_path: Path, source: KafkaDevBroker, target: PulsarDevBroker
) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0")
    config = configured(tmp_path, source, target)
    run(config)
    target.grow_topic("copy", 4)
    batch = [Record(value=b"%d" % n, key=b"k%d" % n, timestamp=1) for n in range(40)]
    source.append("orders", [encode_batch(batch)])
    run(config)
    found = command("tail", target.url, "copy", "--from", "earliest", "--until-end", "--format", "jsonl")
    assert found.count('"partition":1') and not found.count('"partition":2') and not found.count('"partition":3')
    append(source, 0, "a2")
    config.write_text(config.read_text() + 'key_hash = "murmur3"\n')
    assert "keys were mapped to partitions by java" in run(config, 78)


def test_numbers_rise_with_positions_and_have_limits() -> None:
    rows = pa.record_batch({"ledger": [7, 7, 7, 8], "offset": [1, 1, 2, 0], "batchIndex": [0, 1, -1, -1]})
    numbers = numbers_of(rows, "pulsar")
    assert numbers == sorted(set(numbers)) and numbers[0] == 7 << 33 | 1 << 11
    assert numbers_of(pa.record_batch({"offset": [0, (1 << 62) + 1]}), "kafka") == [0, (1 << 62) + 1]
    busy = {"ledger": [900_000_000, 900_000_000], "offset": [4_000_000, 4_000_000], "batchIndex": [-1, 1999]}
    assert numbers_of(pa.record_batch(busy), "pulsar")[-1] < 1 << 63
    with pytest.raises(ValueError, match="batchIndex is 2048, and 2047 is the largest"):
        numbers_of(pa.record_batch({"ledger": [7], "offset": [1], "batchIndex": [2048]}), "pulsar")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('path = "/x"', "", "sink.path: is required for exactly-once"),
        ("roll.idle", 'positions = "p"\nroll.idle', 'sink.positions: is for delivery = "exactly-once" in transactions'),
    ],
)
def test_mistakes_have_their_key(old: str, new: str, expected: str) -> None:
    text = CONFIG.format(source="kafka://127.0.0.1:1", url="pulsar://127.0.0.1:2", path="/x", idle="1s", more="")
    (only,) = problems(text.replace(old, new))
    assert expected in only


def test_what_cannot_be_numbered_is_refused() -> None:
    text = CONFIG.format(source="tubemq://127.0.0.1:1", url="pulsar://127.0.0.1:2", path="/x", idle="1s", more="")
    with pytest.raises(ConfigError, match=r"sink\.delivery: needs a source whose records have the same numbers"):
        topic_sink(parse_config(text, {}).pipelines["mirror"])
    text = text.replace("tubemq", "kafka") + 'batching = "grouped"\n'
    with pytest.raises(ConfigError, match=r'sink\.delivery: batching = "grouped" changes the order'):
        topic_sink(parse_config(text, {}).pipelines["mirror"])
