"""The built-in sinks beyond what the conformance suite asks: folders, failures, full disks, memory, configuration."""

import contextlib
import errno
import json
import os
import select
import threading
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.pulsar.columns import ROW
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.encoders.base import Encoder
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.runtime.errors import DatasetMismatchError, SinkFailedError
from fastwire_daemon.sinks.base import LoggedSink, logged
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.discard import DiscardSink
from fastwire_daemon.sinks.stdout import ReaderGoneError, StdoutSink
from fastwire_daemon.sinks.thread import SinkThread
from fastwire_daemon.sinks.unlogged import UnloggedSink
from fastwire_daemon.testing import Feed
from tests.support.decoded_dataset import files


def options(**changes: Any) -> DatasetOptions:
    fixed: dict[str, Any] = {"system": "pulsar", "cluster": "feed", "columns": ROW.names}
    return DatasetOptions(**(fixed | changes))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., DatasetSink]]:
    """Makes opened dataset sinks, all for one folder, and closes them."""
    made: list[DatasetSink] = []

    def make(
        encoder: type[Encoder] = ParquetEncoder, fixed: dict[str, Any] | None = None, **changes: Any
    ) -> DatasetSink:
        made.append(DatasetSink(tmp_path / "data", options(**(fixed or {})), encoder, **changes))
        made[-1].open()
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def staged(path: Path) -> list[Path]:
    return list(path.rglob("*-[0-9].part"))


def values_of(path: Path) -> list[bytes]:
    read = [pq.read_table(file, columns=["value"], partitioning=None) for file in files(path)]
    return sorted(value for table in read for value in table["value"].to_pylist())


# Datasets: where rows go


def test_three_readers_agree_on_the_folder(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink, feed = opened(fixed={"split": "topic", "partition_by": "day"}, writers=2), Feed(rows=200, entry_ms=7_200_000)
    for _ in range(3):
        sink.write(feed.chunk(20))
        coverage = sink.commit()
    names = [name for name in ROW.names if name != "headers"]
    order = [("partition", "ascending"), ("offset", "ascending"), ("batchIndex", "ascending")]
    by_arrow = pyarrow.dataset.dataset(tmp_path / "data", partitioning="hive").to_table().sort_by(order).select(names)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    quoted = ", ".join(f'"{name}"' for name in names)
    by_duckdb = connection.sql(
        f'SELECT {quoted} FROM \'{tmp_path}/data/**/*.parquet\' ORDER BY "partition", "offset", "batchIndex"'
    ).to_arrow_table()
    by_polars = pl.read_parquet(f"{tmp_path}/data/**/*.parquet").select(names).sort("partition", "offset", "batchIndex")
    expected = by_arrow.to_pylist()
    assert len(expected) == 12_000
    assert [row["value"] for row in expected] == feed.values_of(coverage)
    assert by_polars.to_dicts() == expected
    found = by_duckdb.to_pylist()
    for row in found:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
    assert found == expected


@pytest.mark.parametrize("split", ["none", "topic", "partition"])
@pytest.mark.parametrize("partition_by", ["none", "day", "hour"])
@pytest.mark.parametrize("entry_rows", [7, 150])
def test_every_row_lies_in_its_folder(
    opened: Callable[..., DatasetSink], tmp_path: Path, split: str, partition_by: str, entry_rows: int
) -> None:
    sink = opened(fixed={"split": split, "partition_by": partition_by}, writers=2)
    feed = Feed(partitions=3, rows=entry_rows, entry_ms=1_700_000)
    for _ in range(3):
        sink.write(feed.chunk(36))
    coverage = sink.commit()
    assert values_of(tmp_path / "data") == sorted(feed.values_of(coverage))
    for file in files(tmp_path / "data"):
        levels = dict(part.split("=") for part in file.relative_to(tmp_path / "data").parts[:-1])
        for row in pq.read_table(file, columns=["topic", "partition", "timestamp"], partitioning=None).to_pylist():
            expected = {"t": row["topic"], "p": str(row["partition"])} if split == "partition" else {}
            expected |= {"t": row["topic"]} if split == "topic" else {}
            expected |= {"dt": f"{row['timestamp']:%Y-%m-%d}"} if partition_by != "none" else {}
            expected |= {"hh": f"{row['timestamp']:%H}"} if partition_by == "hour" else {}
            assert {key: unquote(value) for key, value in levels.items()} == expected


def test_rows_of_a_partition_stay_in_order(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink, feed = opened(fixed={"split": "partition"}), Feed(partitions=3, rows=5)
    for entries in (1, 40, 2, 300, 1):
        sink.write(feed.chunk(entries))
    sink.commit()
    for file in files(tmp_path / "data"):
        table = pq.read_table(file, columns=["offset", "batchIndex"], partitioning=None)
        places = [tuple(row.values()) for row in table.to_pylist()]
        assert places == sorted(places)
        assert len(places) > 500


def test_writers_take_whole_chunks_in_turn(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink, feed = opened(writers=2), Feed(partitions=1, rows=4_000, value_bytes=100)
    for _ in range(4):
        sink.write(feed.chunk(4))
    coverage = sink.commit()
    assert [pq.read_metadata(file).num_rows for file in files(tmp_path / "data")] == [32_000, 32_000]
    assert values_of(tmp_path / "data") == sorted(feed.values_of(coverage))


def test_a_folder_has_one_file_a_roll_whatever_the_writers(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink = opened(fixed={"split": "partition"}, writers=2, gather_bytes=4 << 20)
    feed = Feed(partitions=3, rows=2_000, value_bytes=100)
    for _ in range(10):
        sink.write(feed.chunk(6))
    sink.commit()
    assert len(files(tmp_path / "data")) == 3


def test_columns_are_cut_and_a_time_that_only_the_folders_need_too(
    opened: Callable[..., DatasetSink], tmp_path: Path
) -> None:
    sink = opened(fixed={"columns": ("value", "offset"), "partition_by": "hour"})
    assert sink.needed_columns == {"value", "offset", "timestamp"}
    sink.write(Feed(rows=10).chunk())
    sink.commit()
    [file] = files(tmp_path / "data")
    assert pq.read_schema(file).names == ["value", "offset"]
    assert file.parent.name == "hh=22"


def test_a_written_chunk_is_released(opened: Callable[..., DatasetSink]) -> None:
    sink, chunk = opened(), Feed(rows=10).chunk()
    sink.write(chunk)
    assert chunk.nbytes == 0
    assert chunk.rows == 40


def test_small_row_groups_when_memory_is_short(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink, feed = opened(gather_bytes=2 << 20, writers=1), Feed(partitions=1, rows=16_000, value_bytes=100)
    for _ in range(3):
        sink.write(feed.chunk(1))
    sink.commit()
    [file] = files(tmp_path / "data")
    assert pq.read_metadata(file).num_row_groups == 3


def test_many_folders_share_the_memory(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink = opened(fixed={"split": "partition"}, gather_bytes=1 << 20)
    feed = Feed(partitions=4, rows=1_000, value_bytes=100)
    for _ in range(10):
        sink.write(feed.chunk(16))
    assert feed.held_bytes < 16 << 20
    coverage = sink.commit()
    assert all(pq.read_metadata(file).num_row_groups >= 5 for file in files(tmp_path / "data"))
    assert values_of(tmp_path / "data") == sorted(feed.values_of(coverage))


def test_compressed_lines_say_so_in_their_name(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink = opened(JsonlEncoder, {"extension": "jsonl.gz"}, compression="gzip:1")
    sink.write(Feed(rows=10).chunk())
    sink.commit()
    assert [file.name for file in files(tmp_path / "data")] == ["000000000001-0.jsonl.gz"]
    assert duckdb.connect().execute(f"SELECT count(*) FROM '{tmp_path}/data/*.jsonl.gz'").fetchall() == [(40,)]


# Datasets: what the pipeline is told


def test_is_a_logged_sink(opened: Callable[..., DatasetSink]) -> None:
    assert isinstance(opened(), LoggedSink)


def test_staged_sizes_grow_and_begin_anew(opened: Callable[..., DatasetSink]) -> None:
    sink, feed = opened(row_group_rows=20_000), Feed(partitions=1, rows=16_000, value_bytes=100)
    assert sink.staged_bytes == 0
    sizes = []
    for _ in range(4):
        sink.write(feed.chunk(1))
        sizes.append(sink.staged_bytes)
    assert 0 < sizes[0] < sizes[1]
    sink.commit()
    assert sink.staged_bytes == 0
    assert sink.committed_files == 1
    committed = sink.committed_bytes
    # The first roll has shown what memory becomes on disk.
    sink.write(feed.chunk(1))
    assert committed / 8 < sink.staged_bytes < committed / 2


def test_memory_beside_the_pool_is_estimated(opened: Callable[..., DatasetSink]) -> None:
    sink = opened(fixed={"split": "partition"}, row_group_rows=1_000_000)
    feed = Feed(partitions=4, rows=1_000, value_bytes=200)
    assert sink.unpooled_bytes == 0
    for _ in range(10):
        sink.write(feed.chunk(16))
        chunk_bytes = feed.held_bytes
    copied = sink.unpooled_bytes + chunk_bytes
    assert 40_000_000 < copied < 120_000_000
    sink.commit()
    assert sink.unpooled_bytes == 0


def test_copies_are_counted_until_they_are_written(opened: Callable[..., DatasetSink]) -> None:
    """The rows of mostly empty chunks are copied; full chunks stay where they are, in the pool."""
    sink = opened(row_group_rows=1_000_000, gather_bytes=64 << 20)
    sink.write(Feed(partitions=1, rows=16_000, value_bytes=200).chunk(1))
    assert sink.unpooled_bytes < 4 << 20
    few = Feed(partitions=1, rows=4_000, value_bytes=200, start=sink.commit())
    for _ in range(20):
        sink.write(few.chunk(1))
    assert sink.unpooled_bytes > 20 * 4_000 * 200
    sink.commit()
    assert sink.unpooled_bytes == 0


def test_a_dataset_is_created_when_asked(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink = opened()
    assert not sink.exists
    assert not (tmp_path / "data").exists()
    sink.create_dataset()
    assert sink.exists
    sink.create_dataset()
    assert sink.commit() == Coverage()
    sink.write(Feed(rows=10).chunk())
    sink.commit()
    assert staged(tmp_path / "data") == []
    assert len(files(tmp_path / "data")) == 1


def test_progress_without_rows_is_an_entry_without_files(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink, log = opened(), Log("pulsar", "feed", "t", "0")
    sink.write(marker_chunk([Span(log, Position(3, 4), Position(3, 4), 0)]))
    assert sink.commit().start(log) == Position(3, 4)
    assert files(tmp_path / "data") == []
    entries = list((tmp_path / "data" / "_fastwire" / "log").rglob("*.json"))
    assert len(entries) == 1


def test_refresh_leaves_the_roll_open(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    first, feed = opened(), Feed(rows=10)
    first.create_dataset()
    first.commit()
    other, log = opened(), Log("pulsar", "feed", "other", "0")
    first.write(feed.chunk())
    other.write(marker_chunk([Span(log, Position(1, 1), Position(1, 1), 0)]))
    other.commit()
    assert first.refresh().logs() == [log]
    assert set(first.commit().logs()) == {log, *feed.logs}


def test_another_shape_is_refused(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink = opened()
    sink.create_dataset()
    other = DatasetSink(tmp_path / "data", options(split="topic"), ParquetEncoder)
    with pytest.raises(DatasetMismatchError, match="split of the dataset: none; configured: topic"):
        other.open()
    other.close()


# Datasets: what goes wrong


class SickDisk(Disk):
    """Fails with ``error`` at writes of data files while it is set."""

    def __init__(self) -> None:
        self.error = 0
        self.failed = threading.Event()

    def write(self, file: int, data: memoryview) -> int:
        if self.error:
            self.failed.set()
            raise OSError(self.error, os.strerror(self.error))
        return super().write(file, data)

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        return super().pause(0.01, stop)


def write_until_it_fails(sink: DatasetSink, feed: Feed) -> None:
    for _ in range(100):
        sink.write(feed.chunk(1))


@pytest.mark.parametrize("writers", [1, 2])
def test_a_failed_write_of_a_thread_surfaces_and_open_helps(
    opened: Callable[..., DatasetSink], tmp_path: Path, writers: int
) -> None:
    disk = SickDisk()
    sink = opened(medium=disk, compression="none", row_group_rows=1_000, writers=writers)
    feed = Feed(partitions=1, rows=16_000, value_bytes=100)
    sink.write(feed.chunk(1))
    landed = sink.commit()
    disk.error = errno.EIO
    with pytest.raises(SinkFailedError, match="Input/output error"):
        write_until_it_fails(sink, feed)
    assert feed.held_bytes == 0
    with pytest.raises(SinkFailedError, match="open the sink again"):
        sink.write(feed.chunk(1))
    with pytest.raises(SinkFailedError, match="open the sink again"):
        sink.commit()
    disk.error = 0
    assert sink.open() == landed
    again = Feed(partitions=1, rows=16_000, value_bytes=100, start=landed)
    again_chunk = again.chunk(1)
    sink.write(again_chunk)
    coverage = sink.commit()
    assert values_of(tmp_path / "data") == sorted(again.values_of(coverage))
    assert staged(tmp_path / "data") == []


def test_a_failure_at_the_end_of_a_file_voids_the_commit(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    disk = SickDisk()
    sink, feed = opened(medium=disk), Feed(rows=100)
    sink.write(feed.chunk())
    disk.error = errno.EIO
    with pytest.raises(SinkFailedError):
        sink.commit()
    disk.error = 0
    assert sink.open() == Coverage()
    assert files(tmp_path / "data") == []


def test_a_full_disk_is_waited_out_and_told(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    disk = SickDisk()
    sink = opened(medium=disk, compression="none", row_group_rows=1_000)
    feed = Feed(partitions=1, rows=16_000, value_bytes=100)
    sink.write(feed.chunk(1))
    landed = sink.commit()
    disk.error = errno.ENOSPC

    def work() -> None:
        for _ in range(6):
            sink.write(feed.chunk(1))

    thread = threading.Thread(target=work)
    thread.start()
    assert disk.failed.wait(30)
    while sink.waiting is None:
        thread.join(0.01)
    assert "No space left on device" in sink.waiting
    thread.join(0.1)
    assert thread.is_alive(), "a slow encoder must make write wait"
    disk.error = 0
    thread.join(30)
    coverage = sink.commit()
    assert sink.waiting is None
    assert coverage != landed
    assert values_of(tmp_path / "data") == sorted(feed.values_of(coverage))


def test_a_wait_for_space_can_be_ended(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    disk = SickDisk()
    sink = opened(medium=disk, compression="none", row_group_rows=1_000)
    feed = Feed(partitions=1, rows=16_000, value_bytes=100)
    sink.create_dataset()
    disk.error = errno.ENOSPC

    def interrupt() -> None:
        assert disk.failed.wait(30)
        sink.interrupt()

    stopper = threading.Thread(target=interrupt)
    stopper.start()
    with pytest.raises(SinkFailedError, match="waiting for space"):
        write_until_it_fails(sink, feed)
    stopper.join()
    assert feed.held_bytes == 0
    disk.error = 0
    assert sink.open() == Coverage()
    assert sink.waiting is None


class BrokenEncoder(ParquetEncoder):
    """An encoder of another distribution, with a fault."""

    def write(self, batch: pa.RecordBatch) -> None:
        raise LookupError("a fault of the plug-in")


def test_a_fault_of_an_encoder_is_a_failed_sink(opened: Callable[..., DatasetSink]) -> None:
    sink, feed = opened(BrokenEncoder), Feed(partitions=1, rows=16_000, value_bytes=100)
    with pytest.raises(SinkFailedError, match="LookupError: a fault of the plug-in"):
        write_until_it_fails(sink, feed)
    sink.open()
    sink.write(feed.chunk(1))
    with pytest.raises(SinkFailedError, match="LookupError: a fault of the plug-in"):
        sink.commit()
    assert feed.held_bytes == 0


class UnequalDisk(SickDisk):
    """Full for one encoder's thread, gone for the other."""

    def write(self, file: int, data: memoryview) -> int:
        name = threading.current_thread().name
        self.error = {"encoder-0": errno.ENOSPC, "encoder-1": errno.EIO}.get(name, 0)
        if self.error == errno.EIO:
            self.failed.wait(30)
        return super().write(file, data)


def test_a_failure_of_one_thread_ends_the_wait_of_another(opened: Callable[..., DatasetSink]) -> None:
    sink = opened(medium=UnequalDisk(), compression="none", row_group_rows=1_000, writers=2)
    feed = Feed(partitions=1, rows=16_000, value_bytes=100)
    sink.create_dataset()
    for _ in range(2):
        sink.write(feed.chunk(1))
    with pytest.raises(SinkFailedError, match="Input/output error"):
        sink.commit()
    assert feed.held_bytes == 0


def test_close_deletes_what_was_not_committed(opened: Callable[..., DatasetSink], tmp_path: Path) -> None:
    sink, feed = opened(row_group_rows=1_000), Feed(partitions=1, rows=16_000, value_bytes=100)
    sink.write(feed.chunk(1))
    sink.write(feed.chunk(1))
    sink.close()
    assert feed.held_bytes == 0
    assert files(tmp_path / "data") == staged(tmp_path / "data") == []


# Standard output


def test_lines_on_standard_output() -> None:
    reading, writing = os.pipe()
    feed, sink = Feed(partitions=1, rows=3), StdoutSink(writing)
    assert sink.open() == Coverage()
    sink.write(feed.chunk(1))
    coverage = sink.commit()
    sink.close()
    os.close(writing)
    with open(reading, "rb") as pipe:
        lines = [json.loads(line) for line in pipe]
    assert [line["value"].encode() for line in lines] == feed.values_of(coverage)
    assert list(lines[0]) == list(ROW.names)
    assert sink.rows == 3
    assert feed.held_bytes == 0


@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_makes_write_wait(blocking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filler = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filler += os.write(writing, b"." * 65_536)
    os.set_blocking(writing, blocking)
    feed, sink = Feed(partitions=1, rows=5_000), StdoutSink(writing)
    sink.open()

    waits = threading.Event()

    def select_and_tell(*args: Any) -> Any:
        waits.set()
        return select.select(*args)

    monkeypatch.setattr("fastwire_daemon.sinks.stdout.select", SimpleNamespace(select=select_and_tell))

    def work() -> None:
        try:
            sink.write(feed.chunk(1))
        finally:
            os.close(writing)

    thread = threading.Thread(target=work)
    thread.start()
    assert blocking or waits.wait(30)
    with open(reading, "rb") as pipe:
        assert pipe.read(filler) == b"." * filler
        lines = pipe.read().splitlines()
    thread.join()
    assert [json.loads(line)["value"].encode() for line in lines] == feed.values_of(sink.commit())


def test_a_reader_that_has_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    sink = StdoutSink(writing)
    sink.open()
    with pytest.raises(ReaderGoneError, match="closed by its reader"):
        sink.write(Feed(rows=3).chunk())
    os.close(writing)
    with pytest.raises(SinkFailedError, match="cannot write to standard output: Bad file descriptor"):
        sink.write(Feed(rows=3).chunk())


def test_damaged_entries_are_not_printed(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        sink = StdoutSink(file.fileno())
        sink.open()
        sink.write(Feed(partitions=1, rows=3).chunk(2, damaged=(0,)))
    assert len((tmp_path / "out").read_bytes().splitlines()) == 3


# Progress without a log


def test_progress_forgets_old_intervals_but_never_claims_a_hole() -> None:
    log = Log("pulsar", "c", "t", "0")
    sink = UnloggedSink()
    coverage = Coverage()
    for entry in range(0, 1_000, 2):
        sink.written(marker_chunk([Span(log, Position(1, entry), Position(1, entry + 1), 0)]))
        coverage = sink.commit()
    assert len(coverage.intervals(log)) <= 64
    assert coverage.end(log) == Position(1, 999)
    assert coverage.covers(log, Position(1, 999))
    assert not coverage.covers(log, Position(1, 998))
    assert not coverage.covers(log, Position(1, 2))


def test_open_of_a_sink_without_a_log_starts_from_nothing() -> None:
    sink, feed = DiscardSink(), Feed(rows=10)
    sink.open()
    sink.write(feed.chunk())
    assert sink.commit() != Coverage()
    assert sink.rows == 40
    assert sink.open() == Coverage()
    assert sink.commit() == Coverage()


@pytest.mark.parametrize("quick", [False, True])
async def test_only_a_quick_sink_is_called_on_the_loops_thread(quick: bool) -> None:
    class Watched(DiscardSink):
        thread = 0

        def write(self, chunk: Chunk) -> None:
            self.thread = threading.get_ident()
            super().write(chunk)

    sink = Watched()
    sink.quick = quick
    thread = SinkThread(sink, "watched")
    await thread.write(Feed(rows=10).chunk())
    thread.shutdown()
    assert thread.busy_ns > 0
    assert sink.rows == 40
    assert (sink.thread == threading.get_ident()) == quick


def test_a_sink_with_half_a_log_is_refused() -> None:
    """It would pass for one without a log, and its pipeline would land records twice after a restart."""

    class Half(DiscardSink):
        def create_dataset(self) -> None: ...

        def refresh(self) -> Coverage:
            return Coverage()

    with pytest.raises(TypeError, match=r"Half creates a dataset and lacks .*raise_floors.* of LoggedSink"):
        logged(Half())
    assert logged(DiscardSink()) is None
