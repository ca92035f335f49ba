"""A topic as an exactly-once sink: transactions with positions, fencing, takeovers, kills."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.pipeline.topicchoice import topic_sink
from fastwire_daemon.pipeline.topicledger import LedgerTopicSink, Positions
from fastwire_daemon.runtime.errors import DatasetDamagedError, SinkFailedError, Superseded
from fastwire_daemon.sinks.base import LoggedSink
from fastwire_daemon.systems.kafka import ledger
from fastwire_daemon.systems.kafka.transactions import Transactions
from fastwire_daemon.testing import Feed
from tests.real.daemon import Daemon
from tests.support.nursery import shared
from tests.support.topic_copies import (
    BROKERS,
    LARGE,
    append,
    copied,
    copied_by_killed_daemons,
    daemon,
    has,
    problems,
    produce,
    run,
    tail,
)
from tests.support.waiting import eventually

CONFIG = """\
daemon.http = ""
[pipelines.mirror.source]
url = "{source}"
topics = ["orders"]
subscription = "mirror"
start = "{start}"
[pipelines.mirror.sink]
type = "kafka"
url = "{url}"
topic = "copy"
delivery = "exactly-once"
roll.idle = "{idle}"
{more}
"""


BOTH = pytest.mark.parametrize("target", ["4.1", "2.1"], indirect=True)  # protocols of transactions


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[KafkaDevBroker]:
    release = getattr(request, "param", "4.1")
    with running(KafkaDevBroker(KafkaOptions(release=release, max_message_bytes=10_000, nodes=2))) as broker:
        broker.create_topic("copy", 2)
        yield broker


def configured(
    folder: Path, source: Any, target: Any, *, start: str = "earliest", idle: str = "200ms", more: str = ""
) -> Path:
    config = folder / "config.toml"
    config.write_text(CONFIG.format(source=source.url, url=target.url, start=start, idle=idle, more=more))
    return config


@BOTH
def test_records_and_positions_are_one_transaction(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 2)
    append(source, 0, *(f"a{n}" for n in range(50)))
    append(source, 1, *(f"b{n}" for n in range(50)))
    config = configured(tmp_path, source, target)
    run(config)
    append(source, 0, "a50")
    run(config)
    run(config)
    found = copied(target)
    assert Counter(found) == Counter([*(f"a{n}" for n in range(51)), *(f"b{n}" for n in range(50))])
    assert target.violations == []


@BOTH
def test_a_record_that_the_topic_refuses_stops_its_partition(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 2)
    append(source, 0, "a0", LARGE, "a2")
    append(source, 1, "b0", "b1")
    config = configured(tmp_path, source, target, more='compression = "none"')
    said = run(config, 1)
    assert "cannot be written to copy" in said and "MESSAGE_TOO_LARGE" in said
    append(source, 1, "b2")
    run(config, 1)
    assert sorted(copied(target)) == ["b0", "b1", "b2"]  # nothing of the stopped one, whose transaction was aborted


def letters(broker: KafkaDevBroker) -> list[tuple[str, dict[str, str]]]:
    """Return the dead letters of the topic: value and headers."""
    rows = tail(broker, "dead")
    return [(row["value"], {pair["key"]: pair["value"] for pair in row["headers"]}) for row in rows]


@BOTH
def test_dead_letters_are_part_of_the_transaction(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 2)
    append(source, 0, "a0", LARGE, "a2")
    append(source, 1, "b0")
    batch = encode_batch([Record(value=b"damaged", timestamp=1)])
    source.append_damaged("orders", batch, 8 * (len(batch) - 1), partition=1)
    append(source, 1, "b2")
    config = configured(tmp_path, source, target, more='compression = "none"\ndead_letters = "dead"')
    run(config)
    run(config)
    assert sorted(copied(target)) == ["a0", "a2", "b0", "b2"]
    first, second = sorted(letters(target), key=lambda letter: letter[1]["fastwire.partition"])
    assert first[0] == LARGE and first[1]["fastwire.reason"].startswith("RefusedByTopic: ")
    assert {name: text for name, text in first[1].items() if name != "fastwire.reason"} == {
        "fastwire.system": "kafka",
        "fastwire.topic": "orders",
        "fastwire.partition": "0",
        "fastwire.position": "2",
    }
    assert second[1]["fastwire.reason"].startswith("CorruptMessage") and second[1]["fastwire.position"] == "2@0"
    assert target.violations == []


def test_a_dead_letter_that_its_topic_refuses_stops_the_partition(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 2)
    append(source, 0, "a0", LARGE, "a2")
    append(source, 1, "b0")
    target.create_topic("dead", 1)
    config = configured(tmp_path, source, target, more='compression = "none"\ndead_letters = "dead"')
    said = run(config, 1)
    assert "nor as a dead letter" in said
    assert sorted(copied(target)) == ["b0"]
    assert letters(target) == []


def test_partitions_that_are_added_and_topics_that_are_made_again_are_copied_whole(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 1)
    config = configured(tmp_path, source, target, start="latest")
    append(source, 0, "before")
    run(config)
    source.grow_topic("orders", 2)
    append(source, 1, "b0", "b1")
    run(config)
    source.delete_topic("orders")
    source.create_topic("orders", 2)
    append(source, 0, "c0")
    run(config)
    append(source, 0, "c1")
    source.trim("orders", 1)
    run(config)
    assert sorted(copied(target)) == ["b0", "b1", "c0", "c1"]


def test_positions_decide_and_not_the_cursor_of_the_source(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0", "a1")
    config = configured(tmp_path, source, target)
    run(config)
    source.group("mirror").offsets.clear()  # as if the daemon had died between commit and acknowledgement
    append(source, 0, "a2")
    run(config)
    assert copied(target) == ["a0", "a1", "a2"]


def test_positions_of_a_source_at_other_hosts_are_refused(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0")
    run(configured(tmp_path, source, target))
    with running(KafkaDevBroker(KafkaOptions(cluster_id="another"))) as other:
        other.create_topic("orders", 1)
        append(other, 0, "x0", "x1")
        said = run(configured(tmp_path, other, target), 78)
    assert "holds records of the cluster at" in said and "set source.cluster =" in said


def test_what_others_write_to_the_topic_of_the_positions_holds_up_nothing(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0")
    config = configured(tmp_path, source, target)
    run(config)
    keys = [b"\xff", b"7", b'["positions"]', b'["positions", "another", 1]', b"{}"]
    strange = [Record(value=b"?", key=key, timestamp=1) for key in keys]
    target.append("fastwire-positions", [encode_batch([*strange, Record(value=b"?", timestamp=1)])])
    append(source, 0, "a1")
    run(config)
    assert copied(target) == ["a0", "a1"]
    damaged = Positions("kafka/mirror/copy")
    with pytest.raises(DatasetDamagedError, match="the positions of kafka/mirror/copy"):
        damaged.read({b'["positions","kafka/mirror/copy","kafka","c","orders","0","x"]': b"{}"})


def test_a_topic_that_would_lose_the_positions_is_refused_and_check_says_so(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker
) -> None:
    source.create_topic("orders", 1)
    append(source, 0, "a0")
    config = configured(tmp_path, source, target, more='dead_letters = "dead"')
    said = checked(config, 0)
    assert "fastwire-positions for positions: does not exist, the first run makes it" in said
    assert "dead for dead letters: does not exist" in said
    target.create_topic("fastwire-positions", 1)
    assert "cleanup.policy=delete: retention would delete positions" in checked(config, 1)
    with Daemon("run", str(config), "--until-end", log=tmp_path / "log") as refused:
        refused.wait_for("cleanup.policy=delete: retention would delete positions")
    target.topics["fastwire-positions"].configs["cleanup.policy"] = "compact"
    assert "fastwire-positions for positions: 1 partition" in checked(config, 0)
    run(config)
    assert copied(target) == ["a0"]


def checked(config: Path, code: int) -> str:
    ran = shared().run("check", config, "--connect")
    assert ran.returncode == code, ran.stdout + ran.stderr
    return " ".join((ran.stdout + ran.stderr).split())  # lines are wrapped


@pytest.mark.parametrize(
    ("kind", "target"), [*((kind, "4.1") for kind in BROKERS), ("kafka", "2.1")], indirect=["target"]
)
def test_killed_daemons_write_each_record_once_and_in_order(tmp_path: Path, kind: str, target: KafkaDevBroker) -> None:
    with running(BROKERS[kind]()) as source:
        source.create_topic("orders", 1)
        config = configured(tmp_path, source, target, idle="50ms", more="roll.rows = 400")
        values = [f"{n:05}" for n in range(3_000)]
        assert copied_by_killed_daemons(config, source, target, values, killed=2) == values


def test_killed_daemons_write_records_without_offsets_once(tmp_path: Path, target: KafkaDevBroker) -> None:
    """The partition of a killed daemon is its own until the brokers' timeout, which is 30 s if it is not set."""
    with running(TubeMQDevBroker(TubeMQOptions(consumer_timeout_s=1.0))) as source:
        source.create_topic("orders", 1)
        config = configured(tmp_path, source, target, idle="50ms", more="roll.rows = 200")
        values = [f"{number:04}" for number in range(1_200)]
        assert sorted(copied_by_killed_daemons(config, source, target, values, killed=2)) == values


def test_records_of_a_source_without_offsets_are_copied_once(tmp_path: Path, target: KafkaDevBroker) -> None:
    with running(TubeMQDevBroker()) as source:
        source.create_topic("orders", 1)
        config = configured(tmp_path, source, target)
        for first in range(0, 90, 30):
            produce(source, "orders", [{"value": f"{number:02}"} for number in range(first, first + 30)])
            run(config)
        run(config)
    assert sorted(copied(target)) == [f"{number:02}" for number in range(90)]


@BOTH
def test_a_daemon_takes_over_from_a_killed_one_and_gives_back(tmp_path: Path, target: KafkaDevBroker) -> None:
    expected: list[str] = []

    def more(count: int) -> None:
        values = [f"v{len(expected) + n}" for n in range(count)]
        expected.extend(values)
        produce(source, "orders", [{"value": value, "key": value} for value in values])

    with running(KafkaDevBroker(KafkaOptions(consumer_session_s=5.0))) as source:
        source.create_topic("orders", 4)
        config = configured(tmp_path, source, target, idle="50ms")
        with daemon(config):
            more(400)
            eventually(has(target, 400), "what one daemon writes")
            with daemon(config) as second:
                more(400)
                eventually(has(target, 800), "what both write")
                more(400)
                second.kill()
            more(400)
            eventually(has(target, 1_600), "what the first one takes over")
    assert Counter(copied(target)) == Counter(expected)


@BOTH
def test_a_fenced_writer_commits_nothing(tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker) -> None:
    """One daemon claims the log of another one that is alive: what that one has written and not committed is void."""
    source.create_topic("orders", 1)
    first, second = (sink_of(configured(tmp_path, source, target)) for _ in range(2))
    feed = Feed(partitions=1, rows=10)
    try:
        for sink in (first, second):
            sink.open()
            sink.identify("feed")
        first.claim(dict.fromkeys(feed.logs))
        first.write(feed.chunk(1))
        first.commit()
        landed = first.refresh()
        first.write(feed.chunk(1))
        assert second.claim(dict.fromkeys(feed.logs)) == landed  # what was committed, and no more
        with pytest.raises(Superseded):
            first.commit()
        assert first.open() == landed
        first.write(feed.chunk(1))
        with pytest.raises(SinkFailedError, match="is not claimed"):  # it is another one's now
            first.commit()
        first.open()
        first.claim(dict.fromkeys(feed.logs))  # it is assigned to it again, so the second one gives way
        second.write(feed.chunk(1))
        with pytest.raises(Superseded):
            second.commit()
        assert first.refresh() == landed
        assert len(copied(target)) == 10
    finally:
        first.close()
        second.close()


@BOTH
def test_a_claim_behind_the_own_one_is_given_way_to(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.create_topic("orders", 1)
    first, second = (sink_of(configured(tmp_path, source, target)) for _ in range(2))
    feed = Feed(partitions=1, rows=10)
    read = first._read
    try:
        for sink in (first, second):
            sink.open()

        async def late(claimed: Any) -> None:
            """Read the claims after the other one has claimed, too."""
            await asyncio.to_thread(second.claim, dict.fromkeys(feed.logs))
            await read(claimed)

        monkeypatch.setattr(first, "_read", late)
        with pytest.raises(Superseded, match="another daemon has claimed"):
            first.claim(dict.fromkeys(feed.logs))
        second.write(feed.chunk(1))
        assert second.commit().logs() == feed.logs
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("within", ["claim", "commit"])
@BOTH
def test_a_commit_that_a_killed_daemon_left_open_holds_up_its_successor_for_seconds_only(
    tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """Its entries are with the broker and hide what comes behind, until minutes later the transaction times out."""
    monkeypatch.setattr(ledger, "COMMIT_S", 0.5)
    killed, other, heir = (sink_of(configured(tmp_path, source, target)) for _ in range(3))
    feed, others = Feed(partitions=1, rows=10), Feed(partitions=2, rows=10)
    whole = Transactions.commit

    def is_hidden() -> bool:
        positions = target.topics["fastwire-positions"].partitions[0]
        return positions.stable < positions.end

    async def unanswered(self: Transactions) -> None:
        if self.name == killed._ledger.name:
            await asyncio.Event().wait()
        await whole(self)

    def act(name: str) -> None:
        monkeypatch.setattr(Transactions, "commit", unanswered if name == within else whole)
        if name == "claim":
            killed.claim(dict.fromkeys(feed.logs))
        else:
            killed.write(feed.chunk(1))
            killed.commit()

    try:
        for sink in (killed, other):
            sink.open()
        with ThreadPoolExecutor(1) as thread, ExitStack() as at_end:
            at_end.callback(killed.interrupt)
            for name in ("claim", "commit")[: 1 + (within == "commit")]:
                acting = thread.submit(act, name)
                if name != within:
                    acting.result()
            eventually(is_hidden, "an open transaction")
            heir.open()  # it does not wait: nothing is claimed yet
            assert heir.claim(dict.fromkeys(feed.logs)).logs() == []
            heir.write(feed.chunk(1))
            assert heir.commit().logs() == feed.logs
        with pytest.raises(SinkFailedError, match="was stopped while it waited"):
            acting.result()
        assert other.claim(dict.fromkeys(others.logs)).logs() == feed.logs
        assert len(copied(target)) == 10
    finally:
        for sink in (killed, other, heir):
            sink.close()


def sink_of(config: Path) -> LedgerTopicSink:
    sink = topic_sink(parse_config(config.read_text(), {}).pipelines["mirror"])
    assert isinstance(sink, LedgerTopicSink)
    return sink


def test_it_is_a_logged_sink(tmp_path: Path, source: KafkaDevBroker, target: KafkaDevBroker) -> None:
    sink = sink_of(configured(tmp_path, source, target))
    assert isinstance(sink, LoggedSink) and sink.exactly_once


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('path = "/x"', "f.toml:13: pipelines.mirror.sink.path: is for at-least-once"),
        ('on_error = "dead_letter"', "f.toml:13: pipelines.mirror.sink.on_error: needs a topic for dead letters"),
        ('dead_letters = "copy"', "f.toml:13: pipelines.mirror.sink.dead_letters: is the topic of the records"),
        ('positions = "copy"', "f.toml:10: pipelines.mirror.sink.topic: is the topic of the positions"),
    ],
)
def test_mistakes_have_their_key_and_line(more: str, expected: str) -> None:
    text = CONFIG.format(source="kafka://127.0.0.1:1", url="kafka://127.0.0.1:2", start="latest", idle="1s", more=more)
    (only,) = problems(text)
    assert only.startswith(expected)


def test_what_cannot_be_exactly_once_is_refused() -> None:
    text = CONFIG.format(source="kafka://127.0.0.1:1", url="tank://127.0.0.1:2", start="latest", idle="1s", more="")
    with pytest.raises(ConfigError, match=r"sink\.delivery: cannot be exactly-once: tank has no means"):
        parse_config(text.replace('type = "kafka"', 'type = "tank"'), {})
    text = CONFIG.format(source="pulsar://127.0.0.1:1", url="kafka://127.0.0.1:2", start="latest", idle="1s", more="")
    text = text.replace("start =", 'subscription_type = "shared"\nstart =')
    with pytest.raises(ConfigError, match=r"sink\.delivery: needs a source whose partitions have one reader"):
        topic_sink(parse_config(text, {}).pipelines["mirror"])
