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
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.spark import systems
from fastwire_daemon.spark.datasource import BatchReader, FilteringBatchReader, StreamReader
from fastwire_daemon.spark.ranges import DataLossError
from fastwire_daemon.spark.register import FastwireSource
from tests.source_pipe import entries
from tests.spark_source import ROWS, TOPIC, at, eventually, numbers, serving
from tests.tree import ROOT


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    yield
    for client in systems._kept.values():
        client.close()
    systems._kept.clear()


def given(broker: PulsarDevBroker, **more: str) -> Any:
    basic = {"servers": broker.url, "subscribe": "t", "offsetPollIntervalMs": "0", "pollTimeoutMs": "20000"}
    return CaseInsensitiveDict(basic | more)


def stream(broker: PulsarDevBroker, **more: str) -> StreamReader:
    return StreamReader(given(broker, **more))


def rows(reader: Any, partitions: list[Any]) -> list[int]:
    """What tasks would read, on copies that were pickled before any offset was known."""
    copy = pickle.loads(pickle.dumps(reader))
    return [number for each in partitions for number in numbers(copy.read(pickle.loads(pickle.dumps(each))))]


def through_text(offset: Any) -> Any:
    """As Spark keeps it."""
    return json.loads(json.dumps(offset))


class Query:
    """Plays Spark: one query with its checkpoint."""

    def __init__(self, broker: PulsarDevBroker, **more: str) -> None:
        self.broker = broker
        self.more = more
        self.ends: list[Any] = []  # the offset log
        self.committed = 0  # batches in the commit log
        self.read: list[list[int]] = []
        self.start()

    def start(self) -> None:
        """Begin anew from the checkpoint, as 4.2 and later do."""
        self.reader = stream(self.broker, **self.more)
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
        self.read.append(rows(self.reader, partitions))
        self.committed = len(self.ends)

    def go(self) -> list[int]:
        """All that there is, in batches."""
        before = len(self.read)
        while self.plan():
            self.run()
        return [number for batch in self.read[before:] for number in batch]

    def stop(self) -> None:
        self.reader.stop()


@pytest.fixture
def query() -> Iterator[Any]:
    """Make queries; they are stopped in the end."""
    made: list[Query] = []

    def make(broker: PulsarDevBroker, **more: str) -> Query:
        made.append(Query(broker, **more))
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
    assert pickle.loads(pickle.dumps(source.reader(None)))._options.topics == (TOPIC,)


def test_filters_are_only_for_readers_that_say_so() -> None:
    """Spark refuses every batch read of a class that has the method while its own setting is off."""
    with serving() as broker:
        made = {each: FastwireSource(given(broker, filterPushdown=each)).reader(None) for each in ("true", "false")}
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


# --- batch


def test_a_batch_reads_everything() -> None:
    with serving(50) as broker:
        reader = BatchReader(given(broker))
        partitions = reader.partitions()
        assert type(partitions) is list
        assert len(partitions) == 1
        assert rows(reader, partitions) == list(range(50))
        eventually(lambda: broker.subscriptions("t") == [])


def test_an_empty_batch() -> None:
    with serving() as broker:
        reader = BatchReader(given(broker))
        assert reader.partitions() == []
        assert list(reader.read(InputPartition(None))) == []


def test_a_batch_between_positions_and_times() -> None:
    with serving(50) as broker:
        first, last = at(broker, 9), at(broker, 29)
        places = {
            "startingOffsets": json.dumps({"t": {"-1": f"{first.a}:{first.b}"}}),
            "endingOffsets": json.dumps({"t": {"-1": f"{last.a}:{last.b}"}}),
        }
        reader = BatchReader(given(broker, **places))
        assert rows(reader, reader.partitions()) == list(range(10, 30))
        times = {"startingTimestamp": "1700000010000", "endingTimestamp": "1700000030000"}
        reader = BatchReader(given(broker, **times))
        assert rows(reader, reader.partitions()) == list(range(10, 30))
        reader = BatchReader(given(broker, startingTimestamp="1700000099000"))
        with pytest.raises(FastwireError, match="has no record of 1700000099000 or later"):
            reader.partitions()
        reader = BatchReader(
            given(broker, startingTimestamp="1700000099000", startingOffsetsByTimestampStrategy="latest")
        )
        assert reader.partitions() == []


def test_a_batch_of_a_topic_that_is_not_there() -> None:
    with serving() as broker:
        with pytest.raises(FastwireError, match="default/no: there is no such topic"):
            BatchReader(given(broker, subscribe="t,no")).partitions()
        with pytest.raises(FastwireError, match="default/no: there is no such topic"):
            BatchReader(CaseInsensitiveDict({"servers": broker.url, "assign": '{"no":[-1]}'})).partitions()
        with pytest.raises(FastwireError, match="named by an option, and not read by this query"):
            BatchReader(given(broker, startingOffsets='{"other":{"-1":"1:2"}}')).partitions()


def test_a_batch_in_pieces() -> None:
    with serving(20) as broker:
        reader = BatchReader(given(broker, minPartitions="4"))
        partitions = reader.partitions()
        assert len(partitions) == 4
        assert rows(reader, partitions) == list(range(20))


def test_filters_narrow_the_partitions() -> None:
    with serving() as broker:
        broker.create_topic("many", 4)
        for index in range(4):
            broker.append(f"many-partition-{index}", entries(index, 1))
        reader = FilteringBatchReader(given(broker, subscribe="many"))
        filters = [In(("partition",), (1, 2)), EqualTo(("offset",), 0)]
        assert list(reader.pushFilters(filters)) == filters
        assert rows(reader, reader.partitions()) == [1, 2]


def test_columns_are_what_was_declared() -> None:
    with serving(3) as broker:
        reader = BatchReader(given(broker, columns="*"))
        [partition] = reader.partitions()
        [batch] = list(reader.read(partition))
        batch.validate(full=True)
        assert batch.num_rows == 3 * ROWS
        names = [name for name in batch.schema.names if batch.schema.field(name).nullable]
        assert names == batch.schema.names
        [first, *_] = batch.to_pylist()
        assert (first["topic"], first["partition"], first["offset"], first["batchIndex"]) == (TOPIC, -1, 0, 0)
        assert (first["producer"], first["key"], first["headers"]) == ("p", None, None)


def test_batches_are_cut_to_size() -> None:
    with serving(50) as broker:
        reader = BatchReader(given(broker, batchRows="100"))
        batches = list(reader.read(*reader.partitions()))
        assert {batch.num_rows for batch in batches} == {100}
        reader = BatchReader(given(broker, batchBytes="2KiB"))
        batches = list(reader.read(*reader.partitions()))
        assert max(batch.nbytes for batch in batches) <= 2200
        assert sum(batch.num_rows for batch in batches) == 500


def test_a_range_carries_no_secret() -> None:
    with serving(3) as broker:
        [partition] = BatchReader(given(broker, **{"auth.token": "s3cret"})).partitions()
        assert b"s3cret" not in pickle.dumps(partition)
        assert "s3cret" not in repr(partition)


def test_connections_are_kept_from_task_to_task() -> None:
    with serving(50) as broker:
        reader = BatchReader(given(broker))
        partitions = reader.partitions()
        before = broker.accepted
        for _ in range(3):
            assert rows(reader, partitions) == list(range(50))
        assert broker.accepted == before + 1


def test_whoever_ends_early_is_let_go() -> None:
    with serving(5000) as broker:
        reader = BatchReader(given(broker))
        [partition] = reader.partitions()
        batches = reader.read(partition)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert systems._kept == {}
        eventually(lambda: broker.subscriptions("t") == [])


# --- streams


def test_a_stream_reads_what_comes(query: Any) -> None:
    with serving(30) as broker:
        one = query(broker, startingOffsets="earliest")
        assert one.go() == list(range(30))
        assert not one.plan()
        broker.append("t", entries(30, 25))
        assert one.go() == list(range(30, 55))
        assert len(one.ends) == 2
        assert "init" in one.ends[0]
        assert "init" not in one.ends[1]


def test_a_stream_begins_at_the_end_unless_told(query: Any) -> None:
    with serving(30) as broker:
        one = query(broker)
        assert one.reader.initialOffset() is one.reader.initialOffset()
        assert not one.plan()
        broker.append("t", entries(30, 5))
        assert one.go() == list(range(30, 35))


def test_the_beginning_does_not_move_between_two_questions(query: Any) -> None:
    with serving(30) as broker:
        one = query(broker)
        broker.append("t", entries(30, 5))
        assert json.dumps(one.reader.initialOffset()) == json.dumps(one.initial)


def test_nothing_new_is_the_very_same_text(query: Any) -> None:
    with serving(30) as broker:
        broker.create_topic("u", 3)
        one = query(broker, subscribe="u,t", startingOffsets="earliest")
        one.go()
        start = through_text(one.at)
        assert one.reader.latestOffset(start, ReadAllAvailable()) is start


def test_a_driver_that_dies_in_batch_0_loses_nothing(query: Any) -> None:
    """The checkpoint holds the end alone, and the beginning has moved meanwhile."""
    with serving(10) as broker:
        one = query(broker)  # from the latest on
        broker.append("t", entries(10, 10))
        assert one.plan()
        one.stop()
        broker.append("t", entries(20, 10))
        one.start()
        assert one.read == [list(range(10, 20))]
        assert one.go() == list(range(20, 30))


def test_a_driver_that_dies_in_a_later_batch_reads_the_same_again(query: Any) -> None:
    with serving(10) as broker:
        one = query(broker, startingOffsets="earliest", subscription="s")
        one.go()
        broker.append("t", entries(10, 10))
        assert one.plan()
        one.stop()
        broker.append("t", entries(20, 10))
        one.start()
        assert one.read[1] == list(range(10, 20))
        one.stop()
        one.start()
        assert one.go() == list(range(20, 30))


def test_limits_by_rows(query: Any) -> None:
    with serving(50) as broker:
        one = query(broker, startingOffsets="earliest", maxRecordsPerTrigger="100")
        assert one.reader.getDefaultReadLimit() == ReadMaxRows(100)
        assert one.go() == list(range(50))
        assert len(one.read) >= 3
        # Whoever asks for all gets all, whatever the options say.
        broker.append("t", entries(50, 50))
        assert one.plan(ReadAllAvailable())
        one.run()
        assert one.read[-1] == list(range(50, 100))


def test_limits_by_bytes(query: Any) -> None:
    with serving(50, ledger_entries=1000) as broker:
        one = query(broker, startingOffsets="earliest", maxBytesPerTrigger="300")
        assert one.reader.getDefaultReadLimit() == ReadMaxBytes(300)
        assert one.go() == list(range(50))
        assert len(one.read) > 3


def test_a_budget_is_shared_and_nobody_starves(query: Any) -> None:
    with serving() as broker:
        broker.create_topic("many", 3)
        for index, count in enumerate((30, 1, 10)):
            broker.append(f"many-partition-{index}", entries(100 * index, count))
        one = query(broker, subscribe="many", startingOffsets="earliest", maxRecordsPerTrigger="60")
        assert one.plan()
        one.run()
        assert {number // 100 for number in one.read[0]} == {0, 1, 2}
        rest = one.go()
        assert sorted(one.read[0] + rest) == [*range(30), 100, *range(200, 210)]


def test_too_few_are_waited_for(query: Any) -> None:
    with serving(10) as broker:
        one = query(broker, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
        broker.append("t", entries(10, 2))
        for _ in range(40):  # the average needs a while to see how many rows an entry has
            assert not one.plan()
        broker.append("t", entries(12, 18))
        assert one.go() == list(range(10, 30))
        broker.append("t", entries(30, 1))
        assert not one.plan()
        one.reader._delayed_since -= 3601
        assert one.go() == [30]


def test_available_now_ends_where_it_began(query: Any) -> None:
    with serving(50) as broker:
        one = query(broker, startingOffsets="earliest", maxRecordsPerTrigger="150", minOffsetsPerTrigger="120")
        one.reader.prepareForTriggerAvailableNow()
        broker.append("t", entries(50, 20))
        assert one.go() == list(range(50))
        assert len(one.read) > 2


def test_the_newest_is_reported_for_the_lag(query: Any) -> None:
    with serving(50) as broker:
        one = query(broker, startingOffsets="earliest", maxRecordsPerTrigger="10")
        one.plan()
        last = at(broker, 49)
        assert one.reader.reportLatestOffset()["p"][TOPIC]["-1"] == f"{last.a}:{last.b}"


def test_spark_4_0_passes_no_arguments(query: Any) -> None:
    with serving(10) as broker:
        reader = stream(broker, startingOffsets="earliest")
        first = through_text(reader.latestOffset())  # before initialOffset
        initial = through_text(reader.initialOffset())
        assert rows(reader, reader.partitions(initial, first)) == list(range(10))
        assert through_text(reader.latestOffset()) == first
        broker.append("t", entries(10, 5))
        second = through_text(reader.latestOffset())
        assert rows(reader, reader.partitions(first, second)) == list(range(10, 15))
        reader.stop()
        # A restart says where the query is by an empty batch.
        reader = stream(broker, startingOffsets="earliest")
        assert reader.partitions(second, second) == []
        broker.append("t", entries(15, 5))
        third = through_text(reader.latestOffset())
        assert rows(reader, reader.partitions(second, third)) == list(range(15, 20))
        reader.stop()


# --- commits


def test_the_backlog_shrinks_as_spark_commits(query: Any) -> None:
    with serving(30) as broker:
        one = query(broker, startingOffsets="earliest", subscription="s")
        one.plan()
        assert broker.backlog("t", "s") == 300  # planned is not read
        one.run()
        assert broker.backlog("t", "s") == 300  # nor is read committed
        assert not one.plan()  # Spark asks for what follows only when it is
        assert broker.backlog("t", "s") == 0
        broker.append("t", entries(30, 5))
        one.plan()
        one.reader.commit(through_text(one.ends[-1]))
        assert broker.backlog("t", "s") == 0


def test_a_stream_without_a_subscription_is_warned(query: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(3) as broker:
        query(broker, subscription="s")
        assert "retention" not in caplog.text
        query(broker)
        assert "retention alone decides" in caplog.text


def test_a_subscription_keeps_its_place_for_a_stream_from_the_latest(query: Any) -> None:
    with serving(30) as broker:
        one = query(broker, subscription="s")
        one.plan()
        assert broker.backlog("t", "s") == 0


def test_commits_that_fail_end_no_query(query: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(30) as broker:
        one = query(broker, startingOffsets="earliest", subscription="s", pollTimeoutMs="50")
        strict = query(
            broker, startingOffsets="earliest", subscription="s2", pollTimeoutMs="50", failOnCommitError="true"
        )
        one.plan()
        strict.plan()
        broker.muted = True
        broker.drop_connections()
        for each in (one, strict):
            each.reader._broker._client.settings = type(each.reader._broker._client.settings)(
                url=each.reader._broker._client.settings.url, operation_timeout_s=0.1, connect_timeout_s=0.1
            )
    with caplog.at_level(logging.WARNING):
        one.reader.commit(one.ends[-1])
    assert "the brokers were not told what is committed" in caplog.text
    with pytest.raises(FastwireError, match="acknowledging"):
        strict.reader.commit(strict.ends[-1])


# --- what comes and goes


def test_new_partitions_begin_at_their_beginning(query: Any) -> None:
    with serving() as broker:
        broker.create_topic("many", 1)
        broker.append("many-partition-0", entries(0, 3))
        one = query(broker, subscribe="many", topicRefreshIntervalMs="0", subscription="s")
        broker.append("many-partition-0", entries(3, 3))
        assert one.go() == [3, 4, 5]
        grow(broker, "many", 2)
        broker.append("many-partition-1", entries(100, 3))
        assert one.plan()
        assert one.ends[-1]["new"] == {"persistent://public/default/many": {"1": "-1:-1"}}
        one.stop()
        broker.append("many-partition-1", entries(103, 3))
        one.start()  # the same again, whatever is there by now
        assert one.read[-1] == [100, 101, 102]
        assert one.go() == [103, 104, 105]
        assert "new" not in one.ends[-1]


def grow(broker: PulsarDevBroker, name: str, partitions: int) -> None:
    full = f"persistent://public/default/{name}"
    for index in range(broker._partitioned[full], partitions):
        broker.create_topic(f"{name}-partition-{index}")
    broker._partitioned[full] = partitions


def test_a_topic_that_is_deleted(query: Any) -> None:
    with serving(10) as broker:
        broker.create_topic("u")
        strict = query(broker, subscribe="t,u", startingOffsets="earliest", topicRefreshIntervalMs="0")
        lenient = query(
            broker, subscribe="t,u", startingOffsets="earliest", topicRefreshIntervalMs="0", failOnDataLoss="false"
        )
        assert strict.go() == lenient.go() == list(range(10))
        broker.append("u", entries(100, 1))
        broker.delete_topic("t")
        with pytest.raises(DataLossError, match="default/t: does not exist any more"):
            strict.plan()
        assert lenient.go() == [100]
        assert lenient.at["p"].keys() == {TOPIC, "persistent://public/default/u"}  # never dropped without a word
        broker.create_topic("t")
        broker.append("t", entries(200, 2))
        assert lenient.go() == [200, 201]


def test_a_topic_that_is_deleted_before_its_batch_is_read(query: Any) -> None:
    with serving(10) as broker:
        for fail in ("true", "false"):
            one = query(broker, startingOffsets="earliest", failOnDataLoss=fail)
            assert one.plan()
            broker.delete_topic("t")
            if fail == "true":
                with pytest.raises(DataLossError, match=r"does not exist any more|does not know the topic"):
                    one.run()
            else:
                one.run()
                assert one.read == [[]]
            broker.create_topic("t")
            broker.append("t", entries(0, 10))


@pytest.mark.parametrize("subscription", ["", "s"])
def test_what_retention_takes_is_said(query: Any, subscription: str) -> None:
    with serving(10) as broker:
        more = {"startingOffsets": "earliest"} | ({"subscription": subscription} if subscription else {})
        strict = query(broker, **more)
        assert strict.go() == list(range(10))
        assert not strict.plan()
        broker.append("t", entries(10, 30))
        broker.trim("t", *at(broker, 30))
        assert strict.plan()
        with pytest.raises(DataLossError, match="where it begins, is gone"):
            strict.run()
        strict.stop()
        strict.more["failOnDataLoss"] = "false"
        strict.start()
        assert strict.read[-1] == list(range(30, 40))


def test_what_was_read_may_go_where_a_subscription_holds_the_rest(query: Any) -> None:
    """A ledger that is read and closed is deleted at once, by default."""
    with serving(20) as broker:
        one = query(broker, startingOffsets="earliest", subscription="s")
        assert one.go() == list(range(20))
        assert not one.plan()
        broker.append("t", entries(20, 5))
        broker.trim("t", *at(broker, 20))
        assert one.go() == list(range(20, 25))


def test_a_topic_that_ends_before_what_was_read(query: Any) -> None:
    with serving(10) as broker:
        one = query(broker, startingOffsets="earliest")
        one.go()
        one.ends[-1]["p"][TOPIC]["-1"] = "99:5"
        with pytest.raises(DataLossError, match=r"ends at \(3, 9\), before \(99, 5\)"):
            one.plan()


def test_a_checkpoint_that_was_changed(query: Any) -> None:
    with serving(10) as broker:
        one = query(broker, startingOffsets="earliest")
        one.plan()
        end = through_text(one.ends[-1])
        end["p"] = {}
        with pytest.raises(DataLossError, match="the checkpoint was changed"):
            one.reader.partitions(one.initial, end)
