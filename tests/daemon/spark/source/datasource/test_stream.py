"""The stream reader as Spark calls it, called without Spark: offsets, limits, and commits."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from fastwire.errors import FastwireError
from fastwire_daemon.spark.source.datasource import StreamReader
from fastwire_daemon.spark.source.offsets import read_offsets
from tests.daemon.spark.source.datasource.playing import rows, stream, through_text
from tests.support.spark_scene import KafkaScene, Scene, Serve, TankScene, serve

# Systems whose partitions have leaders, and what a partition without one is called.
LEADERLESS = [(KafkaScene, "LEADER_NOT_AVAILABLE"), (TankScene, "no leader")]

# --- streams


def test_a_stream_reads_what_comes(serving: Serve, query: Any) -> None:
    with serving(30) as scene:
        one = query(scene, startingOffsets="earliest")
        assert one.go() == list(range(30))
        assert not one.plan()
        scene.append(30, 25)
        assert one.go() == list(range(30, 55))
        assert len(one.ends) == 2
        assert "init" in one.ends[0]
        assert "init" not in one.ends[1]


def test_a_stream_begins_at_the_end_unless_told(serving: Serve, query: Any) -> None:
    with serving(30) as scene:
        one = query(scene)
        assert one.reader.initialOffset() is one.reader.initialOffset()
        assert not one.plan()
        scene.append(30, 5)
        assert one.go() == list(range(30, 35))


def test_a_stream_has_to_know_where_each_partition_begins(serving: Serve) -> None:
    """Those that are not named would begin at their end: their records would be skipped without a word."""
    with serving() as scene:
        scene.create("many", 3)
        scene.append(0, 3, "many", 1)
        beginning = scene.text(scene.beginning) if scene.system != "pulsar" else -2
        one = stream(scene, subscribe="many", startingOffsets=json.dumps({"many": {"1": beginning}}))
        names = ", ".join(f"{scene.name('many')} partition {index}" for index in (0, 2))
        with pytest.raises(FastwireError, match=rf"^startingOffsets does not name {names}: a stream has to know"):
            one.initialOffset()
        one.stop()
        whole = stream(scene, subscribe="many", startingOffsets=json.dumps({"many": {"0": -1, "1": -2, "2": -1}}))
        assert len(whole.initialOffset()["p"][scene.name("many")]) == 3
        whole.stop()


def test_a_stream_has_to_know_the_time_of_each_partition(serving_times: Serve) -> None:
    with serving_times() as scene:
        scene.create("many", 2)
        one = stream(scene, subscribe="many", startingOffsetsByTimestamp='{"many":{"1":1000}}')
        with pytest.raises(FastwireError, match=r"startingOffsetsByTimestamp does not name .* partition 0: .*0 is the"):
            one.initialOffset()
        one.stop()


def test_a_pattern_without_a_topic_says_so(serving: Serve, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as scene:
        one = StreamReader({"servers": scene.url, "subscribePattern": "elsewhere.*"})
        assert one.initialOffset()["p"] == {}
        one.stop()
    assert "subscribePattern elsewhere.* matches no topic now" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("lost", ["a batch", "the first batch"])
def test_batches_end_where_tables_of_a_job_end(serving: Serve, query: Any, tmp_path: Path, lost: str) -> None:
    """The checkpoint is older than the table: what has landed is one batch, and what has come since is the next."""
    with serving(10) as scene:
        whole = query(scene, startingOffsets="earliest")
        whole.go()
        older = whole.ends[:1]
        scene.append(10, 10)
        whole.go()
        begun, ended = read_offsets(whole.initial, scene.system), read_offsets(whole.ends[-1], scene.system)
        landed = replace(ended, init=begun.positions, new={})
        path = tmp_path / "landed.json"
        path.write_text(json.dumps([landed.document()]))
        scene.append(20, 10)
        # Without the positions a query that has lost its first batch would begin at the end.
        again = query(scene, startingOffsets="latest", landedOffsets=str(path))
        if lost == "a batch":
            again.ends, again.committed = older, 1
        assert again.go() == list(range(10 if lost == "a batch" else 0, 30))
        batches = [list(range(10, 20)), list(range(20, 30))]
        assert again.read == (batches if lost == "a batch" else [list(range(20)), batches[1]])


def test_a_process_whose_query_has_ended_ends_in_silence() -> None:
    """Spark closes its pipe to the process that knows the offsets, whose complaint about that would land on stderr."""
    script = """
import pyspark.daemon
from fastwire_daemon.spark.source.datasource import StreamReader
reader = StreamReader({"servers": "kafka://127.0.0.1:1", "subscribe": "t"})
try:
    raise EOFError
finally:
    reader.stop()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_beginning_does_not_move_between_two_questions(serving: Serve, query: Any) -> None:
    with serving(30) as scene:
        one = query(scene)
        scene.append(30, 5)
        assert json.dumps(one.reader.initialOffset()) == json.dumps(one.initial)


def test_nothing_new_is_the_very_same_text(serving: Serve, query: Any) -> None:
    with serving(30) as scene:
        scene.create("u", 3)
        one = query(scene, subscribe="u,t", startingOffsets="earliest")
        one.go()
        start = through_text(one.at)
        assert one.reader.latestOffset(start, ReadAllAvailable()) is start


@pytest.mark.parametrize(("kind", "error"), LEADERLESS)
def test_a_partition_without_a_leader_holds_up_no_other(
    query: Any, caplog: pytest.LogCaptureFixture, kind: Callable[..., Scene], error: str
) -> None:
    """Neither while the query runs nor where it begins again; and what it held comes when it has a leader."""
    scene = kind(nodes=2)

    def append(first: int) -> None:
        for partition in range(3):
            scene.append(first + partition * 10, 10, "u", partition)

    with serve(scene):
        scene.create("u", 3)
        append(0)
        one = query(scene, subscribe="u", startingOffsets="earliest")
        assert sorted(one.go()) == list(range(30))
        scene.broker.move_leader("u", 1, node=-1)
        append(100)
        assert sorted(one.go()) == [*range(100, 110), *range(120, 130)]
        one.stop()
        one.start()
        append(200)
        assert sorted(one.go()) == [*range(200, 210), *range(220, 230)]
        scene.broker.grow_topic("u", 4)
        scene.broker.move_leader("u", 3, node=-1)
        scene.append(300, 10, "u", 3)
        one.stop()
        one.start()  # so that the new partition is looked for at once
        assert not one.plan()
        for partition in (1, 3):
            scene.broker.move_leader("u", partition, node=0)
        assert sorted(one.go()) == [*range(110, 120), *range(210, 220), *range(300, 310)]
    told = [record.message for record in caplog.records if "cannot be read at the moment" in record.message]
    assert told and all(error in text for text in told)


@pytest.mark.parametrize(("kind", "error"), LEADERLESS)
def test_a_query_without_any_leader_is_patient_and_names_a_partition(
    query: Any, kind: Callable[..., Scene], error: str
) -> None:
    scene = kind(nodes=2)
    with serve(scene, 5):
        one = query(scene, startingOffsets="earliest")
        one.go()
        scene.broker.move_leader("t", 0, node=-1)
        one.stop()
        one.more["pollTimeoutMs"] = "300"  # no time for a busy machine to read in
        one.start()
        with pytest.raises(FastwireError, match=f"t.*0: {error}"):
            one.plan()


def test_a_driver_that_dies_in_batch_0_loses_nothing(serving: Serve, query: Any) -> None:
    """The checkpoint holds the end alone, and the beginning has moved meanwhile."""
    with serving(10) as scene:
        one = query(scene)  # from the latest on
        scene.append(10, 10)
        assert one.plan()
        one.stop()
        scene.append(20, 10)
        one.start()
        assert one.read == [list(range(10, 20))]
        assert one.go() == list(range(20, 30))


def test_a_driver_that_dies_in_a_later_batch_reads_the_same_again(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        one = query(scene, startingOffsets="earliest", **scene.group("s"))
        one.go()
        scene.append(10, 10)
        assert one.plan()
        one.stop()
        scene.append(20, 10)
        one.start()
        assert one.read[1] == list(range(10, 20))
        one.stop()
        one.start()
        assert one.go() == list(range(20, 30))


def test_limits_by_rows(serving: Serve, query: Any) -> None:
    with serving(50) as scene:
        one = query(scene, startingOffsets="earliest", maxRecordsPerTrigger="100")
        assert one.reader.getDefaultReadLimit() == ReadMaxRows(100)
        assert one.go() == list(range(50))
        assert len(one.ends) >= 3
        # Whoever asks for all gets all, whatever the options say.
        scene.append(50, 50)
        assert one.plan(ReadAllAvailable())
        one.run()
        assert one.read[-1] == list(range(50, 100))


def test_limits_by_bytes(serving: Serve, query: Any) -> None:
    with serving(50) as scene:
        one = query(scene, startingOffsets="earliest", maxBytesPerTrigger="300")
        assert one.reader.getDefaultReadLimit() == ReadMaxBytes(300)
        assert one.go() == list(range(50))
        assert len(one.ends) > 3


def test_a_budget_is_shared_and_nobody_starves(serving: Serve, query: Any) -> None:
    with serving() as scene:
        scene.create("many", 3)
        for index, count in enumerate((30, 3, 9)):  # shares that are whole entries
            scene.append(100 * index, count, "many", index)
        one = query(scene, subscribe="many", startingOffsets="earliest", maxRecordsPerTrigger="140")
        assert one.plan()
        one.run()
        assert {number // 100 for number in one.read[0]} == {0, 1, 2}
        rest = one.go()
        assert sorted(one.read[0] + rest) == [*range(30), *range(100, 103), *range(200, 209)]


def test_too_few_are_waited_for(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        one = query(scene, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
        scene.append(10, 2)
        for _ in range(40):  # the average needs a while to see how many rows an entry has
            assert not one.plan()
        scene.append(12, 18)
        assert one.go() == list(range(10, 30))
        scene.append(30, 1)
        assert not one.plan()
        one.reader._delayed_since -= 3601
        assert one.go() == [30]


def test_available_now_ends_where_it_began(serving: Serve, query: Any) -> None:
    with serving(50) as scene:
        one = query(scene, startingOffsets="earliest", maxRecordsPerTrigger="150", minOffsetsPerTrigger="120")
        one.reader.prepareForTriggerAvailableNow()
        scene.append(50, 20)
        assert one.go() == list(range(50))
        assert len(one.ends) > 2


def test_the_newest_is_reported_for_the_lag(serving: Serve, query: Any) -> None:
    with serving(50) as scene:
        one = query(scene, startingOffsets="earliest", maxRecordsPerTrigger="10")
        one.plan()
        assert one.reader.reportLatestOffset()["p"] == {scene.topic: {str(scene.index): scene.text(scene.at(49))}}


def test_spark_4_0_passes_no_arguments(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        reader = stream(scene, startingOffsets="earliest")
        first = through_text(reader.latestOffset())  # before initialOffset
        initial = through_text(reader.initialOffset())
        assert rows(reader, reader.partitions(initial, first)) == list(range(10))
        assert through_text(reader.latestOffset()) == first
        scene.append(10, 5)
        second = through_text(reader.latestOffset())
        assert rows(reader, reader.partitions(first, second)) == list(range(10, 15))
        reader.stop()
        # A restart says where the query is by an empty batch.
        reader = stream(scene, startingOffsets="earliest")
        assert reader.partitions(second, second) == []
        scene.append(15, 5)
        third = through_text(reader.latestOffset())
        assert rows(reader, reader.partitions(second, third)) == list(range(15, 20))
        reader.stop()


# --- commits


def test_the_backlog_shrinks_as_spark_commits(serving_groups: Serve, query: Any) -> None:
    with serving_groups(30) as scene:
        one = query(scene, startingOffsets="earliest", **scene.group("s"))
        one.plan()
        assert scene.unread("s") == 300  # planned is not read
        one.run()
        assert scene.unread("s") == 300  # nor is read committed
        assert not one.plan()  # Spark asks for what follows only when it is
        assert scene.unread("s") == 0
        scene.append(30, 5)
        one.plan()
        one.reader.commit(through_text(one.ends[-1]))
        assert scene.unread("s") == 0


def test_a_stream_without_a_subscription_is_warned(
    serving: Serve, query: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(3) as scene:
        query(scene, **scene.group("s"))
        assert "retention" not in caplog.text
        query(scene)
        # Of a group Kafka's brokers think no better.
        assert ("retention alone decides" in caplog.text) is (scene.system == "pulsar")


def test_a_subscription_keeps_its_place_for_a_stream_from_the_latest(serving_groups: Serve, query: Any) -> None:
    with serving_groups(30) as scene:
        one = query(scene, **scene.group("s"))
        one.plan()
        assert scene.unread("s") == 0


def test_commits_that_fail_end_no_query(serving_groups: Serve, query: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving_groups(30) as scene:
        one = query(scene, startingOffsets="earliest", **scene.group("s"), pollTimeoutMs="50")
        strict = query(
            scene,
            startingOffsets="earliest",
            pollTimeoutMs="50",
            failOnCommitError="true",
            **scene.group("s2"),
        )
        one.plan()
        strict.plan()
    # Now nobody is there.
    with caplog.at_level(logging.WARNING):
        one.reader.commit(one.ends[-1])
        one.reader.commit(one.ends[-1])
    assert caplog.text.count("the brokers were not told what is committed") == 1  # and asked again later
    with pytest.raises(FastwireError, match=r"acknowledging|committing"):
        strict.reader.commit(strict.ends[-1])


# --- a first batch without rows, which Spark plans all the same


@pytest.mark.parametrize("starting", ["latest", "earliest"])
@pytest.mark.parametrize("old", [False, True], ids=["", "old"])
def test_an_empty_batch_0_that_fails(serving: Serve, query: Any, starting: str, old: bool) -> None:
    """The beginning has moved when the query comes again, and the topic has a partition more."""
    with serving() as scene:
        scene.create("many", 1)
        one = query(scene, subscribe="many", startingOffsets=starting, topicRefreshIntervalMs="0")
        one.plan_first()
        if old:
            one.ends[0].pop("init", None)  # as earlier versions wrote it
        one.stop()
        scene.append(0, 3, "many", 0)
        scene.grow("many", 2)
        scene.append(100, 3, "many", 1)
        one.start()
        assert one.read == [[]]
        assert sorted(one.go()) == [0, 1, 2, 100, 101, 102]
