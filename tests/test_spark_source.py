"""The readers that Spark calls, called without Spark: offsets, limits, ranges, commits, and what goes wrong.

Where the known traps of Spark's Python sources are tested (in this file unless another is named):

* a beginning that moves: ``the_beginning_does_not_move``, ``a_driver_that_dies_in_batch_0``
* offsets as unstable text: ``nothing_new_is_the_very_same_text``, ``test_spark_offsets``
* state of the driver expected in ``read``: everything here is read by copies that were pickled before any offset
* a question to the brokers at each of Spark's: ``heads_are_asked_for_now_and_then`` of ``test_spark_driver``
* exceptions out of ``commit``: ``commits_that_fail_end_no_query``
* ``pushFilters`` on every reader: ``filters_are_only_for_readers_that_say_so``
* Arrow types and nullability: ``columns_are_what_was_declared``, and Spark's own comparison in ``spark/test_source``
* an empty list of partitions: ``an_empty_batch``
* compiled code in the look-up of formats: ``the_look_up_of_formats_loads_nothing_compiled``
* threads before the fork, connections that die with a worker: ``a_lost_connection_and_a_killed_worker`` of Spark's
* reading through the durable subscription: ``ranges_are_read_at_the_same_time`` of ``test_spark_reading``
* no subscription, and retention: ``a_stream_without_a_subscription_is_warned``, ``what_retention_takes_is_said``
* the last entry of a range taken for its end: ``a_trimmed_end``, ``a_message_in_parts`` of ``test_spark_reading``
* waiting for ever: ``a_silent_broker_is_left``, ``reading_ends_when_it_is_stopped`` of ``test_spark_reading``
* secrets: ``a_range_carries_no_secret``, ``secrets_are_in_no_message`` of ``test_spark_options``
"""

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, In, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire_daemon.config import ConfigError
from fastwire_daemon.spark import systems
from fastwire_daemon.spark.datasource import BatchReader, FilteringBatchReader, StreamReader
from fastwire_daemon.spark.ranges import DataLossError
from fastwire_daemon.spark.register import FastwireSource
from tests.spark_scene import ROWS, SCENES, KafkaScene, PulsarScene, Scene, Serve, numbers_of, serve
from tests.spark_source import eventually
from tests.tree import ROOT

YES_NO = ("true", "false")


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    yield
    for client in systems._kept.values():
        client.close()
    systems._kept.clear()


@pytest.fixture(params=sorted(SCENES))
def system(request: pytest.FixtureRequest) -> str:
    """Each system in turn."""
    return str(request.param)


@pytest.fixture
def serving(system: str) -> Serve:
    """Serve a scene of the system."""

    def start(count: int = 0, **settings: Any) -> Any:
        return serve(SCENES[system](**settings), count)

    return start


@pytest.fixture(autouse=True)
def _soon_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not know is missing after a moment."""
    monkeypatch.setattr("fastwire_daemon.spark.kafka.client.MISSING_S", 0.05)


def given(scene: Scene, **more: str) -> Any:
    basic = {"servers": scene.url, "subscribe": "t", "offsetPollIntervalMs": "0", "pollTimeoutMs": "20000"}
    return CaseInsensitiveDict(basic | more)


def stream(scene: Scene, **more: str) -> StreamReader:
    return StreamReader(given(scene, **more))


def values(reader: Any, partitions: list[Any]) -> list[bytes]:
    """What tasks would read, on copies that were pickled before any offset was known."""
    copy = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in partitions for batch in copy.read(pickle.loads(pickle.dumps(each)))]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def rows(reader: Any, partitions: list[Any]) -> list[int]:
    """The entries that they are of, each of them whole."""
    return numbers_of(values(reader, partitions))


def through_text(offset: Any) -> Any:
    """As Spark keeps it."""
    return json.loads(json.dumps(offset))


class Query:
    """Plays Spark: one query with its checkpoint."""

    def __init__(self, scene: Scene, **more: str) -> None:
        self.scene = scene
        self.more = more
        self.ends: list[Any] = []  # the offset log
        self.committed = 0  # batches in the commit log
        self.values: list[list[bytes]] = []  # of each batch that was read
        self.start()

    def start(self) -> None:
        """Begin anew from the checkpoint, as 4.2 and later do."""
        self.reader = stream(self.scene, **self.more)
        if not self.ends:
            self.initial = through_text(self.reader.initialOffset())
        elif self.committed < len(self.ends):
            if self.committed == 0:
                self.initial = through_text(self.reader.initialOffset())
            self.run()

    @property
    def at(self) -> Any:
        return self.ends[-1] if self.ends else self.initial

    def plan(self, limit: Any = None) -> bool:
        """Plan a batch; whether there is one."""
        start = through_text(self.at)
        end = through_text(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))
        if json.dumps(end) == json.dumps(self.at):
            return False
        self.ends.append(end)
        return True

    def run(self) -> None:
        """Read the batch that is planned, and commit it."""
        before = self.ends[-2] if len(self.ends) > 1 else self.initial
        if not self.ends[:-1] and self.reader._initial is not None:
            before = through_text(self.reader.initialOffset())
        partitions = self.reader.partitions(through_text(before), through_text(self.ends[-1]))
        self.values.append(values(self.reader, partitions))
        self.committed = len(self.ends)

    def go(self) -> list[int]:
        """All that there is, in batches."""
        before = len(self.values)
        while self.plan():
            self.run()
        return numbers_of(value for batch in self.values[before:] for value in batch)

    @property
    def read(self) -> list[list[int]]:
        """The entries of each batch, if none was cut."""
        return [numbers_of(batch) for batch in self.values]

    def stop(self) -> None:
        self.reader.stop()


@pytest.fixture
def query() -> Iterator[Any]:
    """Make queries; they are stopped in the end."""
    made: list[Query] = []

    def make(scene: Scene, **more: str) -> Query:
        made.append(Query(scene, **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()


# --- the source


def test_the_schema_is_what_the_columns_ask_for() -> None:
    source = FastwireSource(CaseInsensitiveDict({"columns": "value,headers,offset"}))
    assert source.schema() == "value binary, offset bigint, headers array<struct<key:string,value:binary>>"
    assert FastwireSource.name() == "fastwire"


def test_wrong_options_are_told_when_the_reader_is_made() -> None:
    source = FastwireSource(CaseInsensitiveDict({"servers": "pulsar://h", "subscribe": "t", "nonsense": "1"}))
    for make in (source.reader, source.streamReader):
        with pytest.raises(ConfigError, match="nonsense: is not an option"):
            make(None)


def test_a_source_travels_and_connects_to_nobody() -> None:
    source = pickle.loads(
        pickle.dumps(FastwireSource(CaseInsensitiveDict({"servers": "pulsar://h", "subscribe": "t"})))
    )
    assert pickle.loads(pickle.dumps(source.reader(None)))._options.topics == ("persistent://public/default/t",)


def test_filters_are_only_for_readers_that_say_so(serving: Serve) -> None:
    """Spark refuses every batch read of a class that has the method while its own setting is off."""
    with serving() as scene:
        made = {each: FastwireSource(given(scene, filterPushdown=each)).reader(None) for each in ("true", "false")}
        from pyspark.sql.datasource import DataSourceReader

        assert type(made["false"]).pushFilters is DataSourceReader.pushFilters
        assert type(made["true"]) is FilteringBatchReader


def test_the_look_up_of_formats_loads_nothing_compiled() -> None:
    """It imports every module of such a name, and one that fails takes all the others along."""
    script = (
        "import sys, pyspark_fastwire as it; assert it.DefaultSource.name() == 'fastwire'; "
        "print(*(name for name, module in sys.modules.items() if name.startswith('fastwire') "
        "and not str(getattr(module, '__file__', '')).endswith('.py')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_an_import_begins_nothing() -> None:
    """Workers of Spark are forks: threads and sockets that an import had made would be dead, or shared."""
    script = (
        "import os, pyarrow, pyspark.sql\n"
        "def held(): return len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))\n"
        "before = held()\n"
        "import fastwire_daemon.spark.datasource\n"
        "print(before == held(), before, held())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("True"), done.stdout


# --- batch


def test_a_batch_reads_everything(serving: Serve) -> None:
    with serving(50) as scene:
        reader = BatchReader(given(scene))
        partitions = reader.partitions()
        assert type(partitions) is list
        assert len(partitions) == 1
        assert rows(reader, partitions) == list(range(50))
        eventually(lambda: scene.left())


def test_an_empty_batch(serving: Serve) -> None:
    with serving() as scene:
        reader = BatchReader(given(scene))
        assert reader.partitions() == []
        assert list(reader.read(InputPartition(None))) == []


def test_a_batch_between_positions_and_times(serving: Serve) -> None:
    with serving(50) as scene:
        first, last = scene.at(9), scene.at(29)
        places = {
            "startingOffsets": json.dumps({"t": {scene.index: scene.text(first)}}),
            "endingOffsets": json.dumps({"t": {scene.index: scene.text(last)}}),
        }
        reader = BatchReader(given(scene, **places))
        assert rows(reader, reader.partitions()) == list(range(10, 30))
        times = {"startingTimestamp": "1700000010000", "endingTimestamp": "1700000030000"}
        reader = BatchReader(given(scene, **times))
        assert rows(reader, reader.partitions()) == list(range(10, 30))
        reader = BatchReader(given(scene, startingTimestamp="1700000099000"))
        with pytest.raises(FastwireError, match="has no record of 1700000099000 or later"):
            reader.partitions()
        reader = BatchReader(
            given(scene, startingTimestamp="1700000099000", startingOffsetsByTimestampStrategy="latest")
        )
        assert reader.partitions() == []


def test_a_batch_of_a_topic_that_is_not_there(serving: Serve) -> None:
    with serving() as scene:
        with pytest.raises(FastwireError, match=f"{scene.name('no')}: there is no such topic"):
            BatchReader(given(scene, subscribe="t,no")).partitions()
        assigned = {"servers": scene.url, "assign": json.dumps({"no": [scene.index]})}
        with pytest.raises(FastwireError, match=f"{scene.name('no')}.*: there is no such topic"):
            BatchReader(CaseInsensitiveDict(assigned)).partitions()
        with pytest.raises(FastwireError, match="named by an option, and not read by this query"):
            BatchReader(given(scene, startingOffsets='{"other":{"3":-2}}')).partitions()


def test_a_batch_in_pieces(serving: Serve) -> None:
    with serving(20) as scene:
        reader = BatchReader(given(scene, minPartitions="4"))
        partitions = reader.partitions()
        assert len(partitions) == 4
        assert rows(reader, partitions) == list(range(20))


def test_filters_narrow_the_partitions(serving: Serve) -> None:
    with serving() as scene:
        scene.create("many", 4)
        for index in range(4):
            scene.append(index, 1, "many", index)
        reader = FilteringBatchReader(given(scene, subscribe="many"))
        filters = [In(("partition",), (1, 2)), EqualTo(("offset",), 0)]
        assert list(reader.pushFilters(filters)) == filters
        assert rows(reader, reader.partitions()) == [1, 2]


def test_columns_are_what_was_declared(serving: Serve) -> None:
    with serving(3) as scene:
        reader = BatchReader(given(scene, columns="*"))
        [partition] = reader.partitions()
        [batch] = list(reader.read(partition))
        batch.validate(full=True)
        assert batch.num_rows == 3 * ROWS
        names = [name for name in batch.schema.names if batch.schema.field(name).nullable]
        assert names == batch.schema.names
        [first, *_] = batch.to_pylist()
        assert (first["topic"], first["partition"], first["offset"]) == (scene.topic, scene.index, 0)
        assert (first["key"], first["headers"], first["timestampType"]) == (None, None, 0)
        assert first["timestamp"].timestamp() == 1_700_000_000
        if scene.system == "pulsar":
            assert (first["batchIndex"], first["producer"]) == (0, "p")


def test_batches_are_cut_to_size(serving: Serve) -> None:
    with serving(50) as scene:
        reader = BatchReader(given(scene, batchRows="100"))
        batches = list(reader.read(*reader.partitions()))
        assert {batch.num_rows for batch in batches} == {100}
        reader = BatchReader(given(scene, batchBytes="2KiB"))
        batches = list(reader.read(*reader.partitions()))
        assert max(batch.nbytes for batch in batches) <= 2200
        assert sum(batch.num_rows for batch in batches) == 500


def test_a_range_carries_no_secret() -> None:
    with serve(PulsarScene(), 3) as scene:  # asks nobody who he is
        [partition] = BatchReader(given(scene, **{"auth.token": "s3cret"})).partitions()
        assert b"s3cret" not in pickle.dumps(partition)
        assert "s3cret" not in repr(partition)


def test_connections_are_kept_from_task_to_task(serving: Serve) -> None:
    with serving(50) as scene:
        reader = BatchReader(given(scene))
        partitions = reader.partitions()
        before = scene.broker.accepted
        for _ in range(3):
            assert rows(reader, partitions) == list(range(50))
        assert scene.broker.accepted == before + 1


def test_whoever_ends_early_is_let_go(serving: Serve) -> None:
    with serving(5000) as scene:
        reader = BatchReader(given(scene, prefetchBatches="1"))  # of four
        [partition] = reader.partitions()
        batches = reader.read(partition)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert systems._kept == {}
        eventually(lambda: scene.left())


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


def test_the_backlog_shrinks_as_spark_commits(serving: Serve, query: Any) -> None:
    with serving(30) as scene:
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


def test_a_subscription_keeps_its_place_for_a_stream_from_the_latest(serving: Serve, query: Any) -> None:
    with serving(30) as scene:
        one = query(scene, **scene.group("s"))
        one.plan()
        assert scene.unread("s") == 0


def test_commits_that_fail_end_no_query(serving: Serve, query: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(30) as scene:
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


# --- what comes and goes


def test_new_partitions_begin_at_their_beginning(serving: Serve, query: Any) -> None:
    with serving() as scene:
        scene.create("many", 1)
        scene.append(0, 3, "many", 0)
        one = query(scene, subscribe="many", topicRefreshIntervalMs="0", **scene.group("s"))
        scene.append(3, 3, "many", 0)
        assert one.go() == [3, 4, 5]
        scene.grow("many", 2)
        scene.append(100, 3, "many", 1)
        assert one.plan()
        assert one.ends[-1]["new"] == {scene.name("many"): {"1": scene.text(scene.beginning)}}
        one.stop()
        scene.append(103, 3, "many", 1)
        one.start()  # the same again, whatever is there by now
        assert one.read[-1] == [100, 101, 102]
        assert one.go() == [103, 104, 105]
        assert "new" not in one.ends[-1]


def test_a_topic_that_is_deleted(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        scene.create("u")
        strict = query(scene, subscribe="t,u", startingOffsets="earliest", topicRefreshIntervalMs="0")
        lenient = query(
            scene, subscribe="t,u", startingOffsets="earliest", topicRefreshIntervalMs="0", failOnDataLoss="false"
        )
        assert strict.go() == lenient.go() == list(range(10))
        scene.append(100, 1, "u")
        scene.delete("t")
        with pytest.raises(DataLossError, match=f"{scene.t}: does not exist any more"):
            strict.plan()
        assert lenient.go() == [100]
        assert lenient.at["p"].keys() == {scene.topic, scene.name("u")}  # never dropped without a word
        scene.create("t")
        scene.append(200, 2)
        assert lenient.go() == [200, 201]


def test_a_topic_that_is_made_again_at_once(query: Any) -> None:
    """Kafka's topics have ids; all partitions begin anew, also those that have nothing yet."""
    with serve(KafkaScene()) as scene:
        scene.create("many", 2)
        scene.append(0, 10, "many", 0)
        scene.append(100, 10, "many", 1)
        strict, lenient = (query(scene, subscribe="many", startingOffsets="earliest", failOnDataLoss=f) for f in YES_NO)
        assert strict.go() == lenient.go() == [*range(10), *range(100, 110)]
        scene.append(10, 1, "many", 0)
        assert strict.plan()
        scene.delete("many")
        scene.create("many", 2)
        scene.append(20, 3, "many", 0)
        for again in (strict.run, strict.plan):
            with pytest.raises(DataLossError, match="many: was deleted and made again"):
                again()
        assert lenient.go() == [20, 21, 22]
        assert lenient.ends[-1]["new"] == {"many": {"0": "0", "1": "0"}}
        assert lenient.ends[-1]["p"] == {"many": {"0": "30@0", "1": "0"}}
        scene.append(120, 12, "many", 1)
        assert lenient.go() == list(range(120, 132))
        assert "new" not in lenient.ends[-1]


def test_a_topic_that_is_deleted_before_its_batch_is_read(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        for fail in ("true", "false"):
            one = query(scene, startingOffsets="earliest", failOnDataLoss=fail)
            assert one.plan()
            scene.delete("t")
            if fail == "true":
                with pytest.raises(DataLossError, match=r"does not exist any more|does not know the topic"):
                    one.run()
            else:
                one.run()
                assert one.read == [[]]
            scene.create("t")
            scene.append(0, 10)


@pytest.mark.parametrize("group", ["", "s"])
def test_what_retention_takes_is_said(serving: Serve, query: Any, group: str) -> None:
    with serving(10) as scene:
        strict = query(scene, startingOffsets="earliest", **(scene.group(group) if group else {}))
        assert strict.go() == list(range(10))
        assert not strict.plan()
        scene.append(10, 30)
        scene.trim(30)
        assert strict.plan()
        with pytest.raises(DataLossError, match=r"where it begins, is gone|what lay before was deleted"):
            strict.run()
        strict.stop()
        strict.more["failOnDataLoss"] = "false"
        strict.start()
        assert strict.read[-1] == list(range(30, 40))


def test_what_was_read_may_go_where_a_subscription_holds_the_rest(serving: Serve, query: Any) -> None:
    """A ledger that is read and closed is deleted at once, by default."""
    with serving(20) as scene:
        one = query(scene, startingOffsets="earliest", **scene.group("s"))
        assert one.go() == list(range(20))
        assert not one.plan()
        scene.append(20, 5)
        scene.trim(20)
        assert one.go() == list(range(20, 25))


def test_a_topic_that_ends_before_what_was_read(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        one = query(scene, startingOffsets="earliest")
        one.go()
        further = Position(scene.at(9).a + 5, 5)
        one.ends[-1]["p"][scene.topic][str(scene.index)] = scene.text(further)
        with pytest.raises(DataLossError, match=f"ends at {scene.text(scene.at(9))}, before {scene.text(further)}"):
            one.plan()


def test_a_checkpoint_that_was_changed(serving: Serve, query: Any) -> None:
    with serving(10) as scene:
        one = query(scene, startingOffsets="earliest")
        one.plan()
        end = through_text(one.ends[-1])
        end["p"] = {}
        with pytest.raises(DataLossError, match="the checkpoint was changed"):
            one.reader.partitions(one.initial, end)
