"""The source and its batch reader as Spark calls them, called without Spark; streams are in ``test_stream``.

Where the known traps of Spark's Python sources are tested (in one of these two unless another is named):

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
import pickle
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, In, InputPartition

from fastwire.errors import FastwireError
from fastwire_daemon.config import ConfigError
from fastwire_daemon.spark.register import FastwireSource
from fastwire_daemon.spark.source import systems
from fastwire_daemon.spark.source.datasource import BatchReader, FilteringBatchReader
from tests.daemon.spark.source.datasource.playing import given, rows
from tests.support.source_tree import ROOT
from tests.support.spark_scene import ROWS, PulsarScene, Serve, serve
from tests.support.spark_source import eventually

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
        "import fastwire_daemon.spark.source.datasource\n"
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


def test_a_batch_between_positions(serving: Serve) -> None:
    with serving(50) as scene:
        first, last = scene.at(9), scene.at(29)
        places = {
            "startingOffsets": json.dumps({"t": {scene.index: scene.text(first)}}),
            "endingOffsets": json.dumps({"t": {scene.index: scene.text(last)}}),
        }
        reader = BatchReader(given(scene, **places))
        assert rows(reader, reader.partitions()) == list(range(10, 30))


def test_a_batch_between_times(serving_times: Serve) -> None:
    with serving_times(50) as scene:
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


@pytest.mark.parametrize("largest", [2**31 - 1, 2**63 - 1])
def test_the_largest_numbers_that_options_take(serving: Serve, largest: int) -> None:
    names = {
        2**31 - 1: ("batchRows", "batchBytes", "prefetchBatches", "fetchOffset.numRetries", "fetchMaxBytes"),
        2**63 - 1: (
            "maxRecordsPerPartition",
            "pollTimeoutMs",
            "fetchOffset.retryIntervalMs",
            "offsetPollIntervalMs",
            "topicRefreshIntervalMs",
        ),
    }
    with serving(30) as scene:
        options = {name: str(largest) for name in names[largest]}
        if scene.system == "pulsar" and options.pop("fetchMaxBytes", ""):
            options["receiverQueueSize"] = str(largest)
        reader = BatchReader(given(scene, **options))
        assert rows(reader, reader.partitions()) == list(range(30))


def test_times_beyond_all_records(serving_times: Serve) -> None:
    with serving_times(3) as scene:
        reader = BatchReader(given(scene, startingTimestamp=str(2**63 - 1)))
        with pytest.raises(FastwireError, match="has no record of 9223372036854775807 or later"):
            reader.partitions()


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
        assert (first["topic"], first["partition"], first["offset"]) == (scene.topic, scene.index, scene.first)
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
        assert rows(reader, partitions) == list(range(50))
        before = scene.broker.accepted
        for _ in range(2):
            assert rows(reader, partitions) == list(range(50))
        assert scene.broker.accepted == before


def test_whoever_ends_early_is_let_go(serving: Serve) -> None:
    with serving(5000) as scene:
        reader = BatchReader(given(scene, prefetchBatches="1"))  # of four
        [partition] = reader.partitions()
        batches = reader.read(partition)
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert systems._kept == {}
        eventually(lambda: scene.left())
