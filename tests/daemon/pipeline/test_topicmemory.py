"""Topics as sinks with positions: records that the topic refuses, partitions that are added, trimmed or made again."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.daemon.pipeline.test_topicsink import SINK
from tests.support.topic_copies import LARGE, append, command, copied, problems, produce, run

CONFIG = """\
daemon.http = ""
[pipelines.mirror.source]
url = "{source}"
topics = ["orders"]
subscription = "mirror"
start = "{start}"
[pipelines.mirror.sink]
type = "{type}"
url = "{url}"
topic = "copy"
compression = "none"
roll.idle = "200ms"
{more}
"""


@pytest.fixture
def target() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions(max_message_bytes=10_000))) as broker:
        broker.create_topic("copy", 1)
        yield broker


@pytest.fixture(params=["kafka", "pulsar", "tank", "tubemq"])
def any_target(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A broker of each system, with the topic ``copy``."""
    with running(dev_broker(request.param)) as broker:
        broker.create_topic("copy", 1)
        yield broker


def configured(
    folder: Path, source: Any, target: Any, *, start: str = "earliest", path: bool = True, more: str = ""
) -> Path:
    lines = [f'path = "{folder / "memory"}"'] if path else []
    config = folder / "config.toml"
    text = CONFIG.format(
        source=source.url, type=target.scheme, url=target.url, start=start, more="\n".join([*lines, more])
    )
    config.write_text(text)
    return config


def letters(folder: Path) -> list[dict[str, Any]]:
    said = command("dead", folder / "memory", "--list", "--json")
    return [json.loads(line) for line in said.splitlines()]


def test_a_record_that_the_topic_refuses_becomes_a_dead_letter(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 2)
    append(source, 0, "a0", LARGE, "a2")
    append(source, 1, "b0", "b1")
    config = configured(tmp_path, source, target)
    said = run(config)
    assert "records have become dead letters" in said and '"reason":"RefusedByTopic"' in said
    assert Counter(copied(target)) == Counter(["a0", "a2", "b0", "b1"])
    (letter,) = letters(tmp_path)
    assert (letter["partition"], letter["position"], letter["rows"]) == ("0", "2", 1)
    assert letter["reason"].startswith("RefusedByTopic: copy partition 0: ") and "MESSAGE_TOO_LARGE" in letter["reason"]
    run(config)  # nothing comes again
    assert len(copied(target)) == 4
    report = json.loads(command("verify", tmp_path / "memory", "--json"))
    assert (report["ok"], report["sent_rows"], report["filtered_rows"], report["rows"]) == (True, 4, 1, 0)


@pytest.mark.parametrize("path", [True, False])
def test_it_stops_its_own_partition_and_the_others_are_written_once(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker, path: bool
) -> None:
    source.create_topic("orders", 2)
    append(source, 0, "a0", LARGE, "a2")
    append(source, 1, "b0", "b1")
    config = configured(tmp_path, source, target, path=path, more='on_error = "stop"')
    said = run(config, 1)
    assert "the record of" in said
    assert "MESSAGE_TOO_LARGE" in said
    append(source, 1, "b2")
    run(config, 1)
    found = Counter(copied(target))
    assert {value: count for value, count in found.items() if value.startswith("b")} == {"b0": 1, "b1": 1, "b2": 1}


def test_each_of_many_refused_records_is_found(tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker) -> None:
    source.create_topic("orders", 1)
    values = [f"{LARGE}{n}" if n % 40 == 7 else f"v{n}" for n in range(200)]
    source.append("orders", [encode_batch([Record(value=v.encode(), timestamp=1) for v in values])])
    run(configured(tmp_path, source, target))
    assert copied(target) == [value for value in values if len(value) < 100]  # in their order
    assert [letter["position"] for letter in letters(tmp_path)] == [f"{n + 1}" for n in range(7, 200, 40)]


def test_headers_that_pulsar_cannot_store_become_dead_letters(tmp_path: Path, source: KafkaDevBroker) -> None:
    source.create_topic("orders", 1)
    records = [Record(value=b"v%d" % n, headers=[("h", b"\xff" if n == 3 else b"x")], timestamp=1) for n in range(10)]
    source.append("orders", [encode_batch(records)])
    with running(PulsarDevBroker()) as target:
        target.create_topic("copy", 1)
        run(configured(tmp_path, source, target))
        assert copied(target) == [f"v{n}" for n in range(10) if n != 3]
    (letter,) = letters(tmp_path)
    assert letter["position"] == "4"


def test_partitions_that_are_added_meanwhile_are_copied_whole(
    tmp_path: Path, source: KafkaDevBroker, any_target: Any
) -> None:
    source.create_topic("orders", 1)
    config = configured(tmp_path, source, any_target, start="latest")
    append(source, 0, "before")
    run(config)
    append(source, 0, "a0")
    run(config)
    source.grow_topic("orders", 2)
    append(source, 1, "b0", "b1")
    run(config)
    append(source, 1, "b2")
    run(config)
    assert Counter(copied(any_target)) == Counter(["a0", "b0", "b1", "b2"])


def test_what_retention_has_left_is_copied(tmp_path: Path, source: KafkaDevBroker, any_target: Any) -> None:
    source.create_topic("orders", 1)
    config = configured(tmp_path, source, any_target, start="latest")
    run(config)
    append(source, 0, *(f"v{n}" for n in range(10)))
    run(config)
    append(source, 0, *(f"v{n}" for n in range(10, 20)))
    source.trim("orders", 12)
    said = run(config)
    assert "a gap is declared" in said
    assert copied(any_target) == [f"v{n}" for n in range(20) if n not in (10, 11)]


def test_a_topic_that_is_made_again_is_copied_from_its_beginning(
    tmp_path: Path, source: KafkaDevBroker, any_target: Any
) -> None:
    source.create_topic("orders", 1)
    config = configured(tmp_path, source, any_target, start="latest")
    run(config)
    append(source, 0, "a0", "a1")
    run(config)
    source.delete_topic("orders")
    source.create_topic("orders", 1)
    append(source, 0, "b0")
    run(config)
    append(source, 0, "b1")
    run(config)
    assert copied(any_target) == ["a0", "a1", "b0", "b1"]


def test_positions_of_another_topic_are_refused(tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0")
    config = configured(tmp_path, source, target)
    run(config)
    config.write_text(config.read_text().replace('topic = "copy"', 'topic = "other"'))
    assert "the topic of the dataset: kafka topic copy at" in run(config, 78)
    with running(KafkaDevBroker()) as elsewhere:
        elsewhere.create_topic("copy", 1)
        assert "the topic of the dataset" in run(configured(tmp_path, source, elsewhere), 78)


def test_a_memory_that_is_lost_is_told(tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0")
    run(configured(tmp_path, source, target, path=False))
    config = configured(tmp_path, source, target)
    assert "the dataset does not exist, but records of" in run(config, 78)
    append(source, 0, "a1")
    run(configured(tmp_path, source, target, more="create = true"))
    assert copied(target) == ["a0", "a1"]


def test_records_of_pulsar_are_remembered(tmp_path: Path, target: KafkaDevBroker) -> None:
    with running(PulsarDevBroker()) as source:
        source.create_topic("orders", 2)
        produce(source, "orders", [{"value": str(n), "key": str(n)} for n in range(100)])
        config = configured(tmp_path, source, target)
        run(config)
        produce(source, "orders", [{"value": str(n), "key": str(n)} for n in range(100, 150)])
        run(config)
    assert Counter(copied(target)) == Counter(map(str, range(150)))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('on_error = "dead_letter"', "f.toml:10: pipelines.mirror.sink.on_error: needs a place for dead letters"),
        ("create = true", "f.toml:10: pipelines.mirror.sink.create: is for the folder of the positions"),
        ('path = "/x"\nstore = {}', "f.toml:11: pipelines.mirror.sink.store: is for object stores"),
        ('split = "topic"', "f.toml:10: pipelines.mirror.sink.split: is for files: pulsar is a topic here"),
    ],
)
def test_mistakes_have_their_key_and_line(more: str, expected: str) -> None:
    (only,) = problems(f"{SINK}{more}\n")
    assert only.startswith(expected)
