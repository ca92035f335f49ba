"""Between chunks and files: rows dealt out to folders, and the threads that encode them."""

import errno
import gc
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from fastwire.position import Log
from fastwire_daemon.encoders.base import Compression, EncoderOptions
from fastwire_daemon.encoders.gather import Gatherer, Piece, own
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.encoders.worker import EncoderThread
from fastwire_daemon.testing import Feed
from tests.support.waiting import eventually

# Gathering


def record_batch(times: list[int | None]) -> pa.RecordBatch:
    number = pa.array(range(len(times)), pa.int64())
    topic = pa.array(["t"] * len(times)).dictionary_encode()
    return pa.record_batch({"timestamp": pa.array(times, pa.timestamp("us", "UTC")), "number": number, "topic": topic})


def by_day(log: Log | None, micros: int | None) -> str:
    return "none" if micros is None else str(micros // 86_400_000_000)


def test_days_of_any_time() -> None:
    day = 86_400_000_000
    times = [0, -1, None, day, day - 1, -day, 2**62, -(2**62), None]
    gatherer = Gatherer(by_day, 1 << 30, by_time="day")
    assert gatherer.add(record_batch(times), 0, []) == []
    pieces = gatherer.flush()
    found = {number: folder for folder, batch in pieces for number in batch.column("number").to_pylist()}
    assert found == {i: "none" if time is None else str(time // day) for i, time in enumerate(times)}


@pytest.mark.parametrize("pieces", [[1] * 200, [100, 28, 72]])
def test_long_and_short_runs_are_dealt_alike(pieces: list[int]) -> None:
    logs = [Log("pulsar", "c", "t", str(i)) for i in range(3)]
    gatherer = Gatherer(lambda log, micros: log.partition if log else "", 1 << 30, by_log=True)
    batch = record_batch([0] * 200)
    runs = [(logs[i % 3], sum(pieces[:i]), rows) for i, rows in enumerate(pieces)]
    assert gatherer.add(batch, 0, runs) == []
    assert gatherer.add(batch.slice(100), 0, [(logs[2], 0, 100)]) == []
    assert gatherer.pending_rows == 300
    dealt = dict(gatherer.flush())
    expected: dict[str, list[int]] = {"0": [], "1": [], "2": []}
    for log, first, rows in runs:
        expected[log.partition] += range(first, first + rows)
    expected["2"] += range(100, 200)
    assert {folder: piece.column("number").to_pylist() for folder, piece in dealt.items()} == expected
    assert gatherer.flush() == []
    assert (gatherer.pending_rows, gatherer.pending_bytes) == (0, 0)


def test_full_chunks_pass_and_sparse_ones_are_copied() -> None:
    feed = Feed(partitions=1, rows=16_000, value_bytes=100)
    gatherer = Gatherer(lambda log, micros: "", 1 << 30)
    full = pa.record_batch(feed.chunk(1))
    assert gatherer.add(full, full.nbytes, []) == [("", full)]
    sparse = Feed(partitions=1, rows=10)
    for number in range(1, 4):
        chunk = sparse.chunk(1)
        held = chunk.nbytes
        assert gatherer.add(pa.record_batch(chunk), held, []) == []
        del chunk
        assert gatherer.pending_rows == 10 * number
        assert sparse.held_bytes == 0
    # What was gathered goes before what comes later.
    pieces = gatherer.add(full, full.nbytes, [])
    assert [piece.num_rows for _, piece in pieces] == [30, 16_000]


def test_what_one_of_many_sinks_has_gathered_for_one_folder_is_not_copied() -> None:
    gatherer = Gatherer(lambda log, micros: "", 1 << 30, patient=True)
    given = [record_batch([number] * 1000) for number in range(3)]
    for batch in given:
        assert gatherer.add(batch, batch.nbytes, []) == []
    pieces = gatherer.flush()
    assert [folder for folder, _ in pieces] == ["", "", ""]
    for (_, piece), batch in zip(pieces, given, strict=True):
        assert piece.column("number").buffers()[1].address == batch.column("number").buffers()[1].address


def test_the_limit_of_what_is_gathered() -> None:
    feed = Feed(partitions=1, rows=10)
    gatherer = Gatherer(lambda log, micros: "", 100_000)
    dealt: list[Piece] = []
    for _ in range(100):
        chunk = feed.chunk(1)
        dealt += gatherer.add(pa.record_batch(chunk), chunk.nbytes, [])
        assert gatherer.pending_bytes < 100_000
    assert sum(piece.num_rows for _, piece in dealt) + gatherer.pending_rows == 1_000
    assert len(dealt) > 5


def test_an_own_copy_shares_nothing() -> None:
    feed = Feed(partitions=2, rows=100)
    batch = pa.record_batch(feed.chunk(4))
    copy, rows = own(batch), batch.to_pylist()
    part = own(batch.slice(150, 7))
    del batch
    assert feed.held_bytes == 0
    assert copy.to_pylist() == rows
    assert part.to_pylist() == rows[150:157]


def test_dealt_pieces_do_not_keep_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    for long_run in (1, 1_000_000):
        monkeypatch.setattr("fastwire_daemon.encoders.gather._LONG_RUN", long_run)
        feed = Feed(partitions=2, rows=2_000, value_bytes=100)
        chunk = feed.chunk(8)
        runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()]
        gatherer = Gatherer(lambda log, micros: log.partition if log else "", 1 << 30, by_log=True)
        assert gatherer.add(pa.record_batch(chunk), 1, runs) == []
        del chunk
        assert feed.held_bytes > 0
        pieces = gatherer.flush()
        assert sum(piece.num_rows for _, piece in pieces) == 16_000
        assert feed.held_bytes == 0


# Encoder threads


class FakeFile:
    """A stage's file, which remembers what is written and can fail."""

    def __init__(self) -> None:
        self.rows = 0
        self.writes = 0
        self.broken = False

    @property
    def file(self) -> "FakeFile":
        return self

    def write(self, data: Any, /) -> int:
        self.writes += 1
        if self.broken:
            raise OSError(errno.EIO, "broken")
        return len(data)


def encoder_thread(
    stage: Callable[[str], FakeFile],
    limit_bytes: int = 1 << 30,
    failures: list[BaseException] | None = None,
    row_group_rows: int = 131_072,
) -> "EncoderThread[FakeFile]":
    failures = [] if failures is None else failures
    wanted = EncoderOptions(compression=Compression("none"), buffer_bytes=1, row_group_rows=row_group_rows)
    return EncoderThread("encoder-test", ParquetEncoder, wanted, stage, limit_bytes, failures.append, file_bytes=0)


def catch_up(thread: "EncoderThread[FakeFile]") -> None:
    """Wait until all that was put before is encoded."""
    reached = threading.Event()

    class Mark(list[Any]):
        """A task without rows that records when its turn has come."""

        def clear(self) -> None:
            reached.set()

    thread.put(Mark())
    assert reached.wait(60)


def test_the_largest_file_writes_when_all_together_hold_too_much() -> None:
    batch = pa.record_batch(Feed(partitions=1, rows=1_000).chunk(1))
    made: dict[str, FakeFile] = {}
    thread = encoder_thread(lambda folder: made.setdefault(folder, FakeFile()), 4 * batch.get_total_buffer_size())
    for folder in ("a", "b", "b", "c"):
        thread.put([(folder, batch)])
    catch_up(thread)
    headers = {folder: file.writes for folder, file in made.items()}
    thread.put([("c", batch)])
    catch_up(thread)
    assert {folder: file.writes > headers[folder] for folder, file in made.items()} == {
        "a": False,
        "b": True,
        "c": False,
    }
    assert [file.rows for file in thread.finish().result()] == [1_000, 2_000, 2_000]
    thread.stop()


def test_copies_of_large_values_are_counted_while_their_rows_are_held() -> None:
    held: list[int] = []

    class Measured(FakeFile):
        def write(self, data: Any, /) -> int:
            held.append(thread.working_bytes)
            return super().write(data)

    thread = encoder_thread(lambda folder: Measured())
    thread.put([("", pa.record_batch({"value": pa.array([b"v"] * 1_000)}))])
    catch_up(thread)
    assert thread.working_bytes == 0
    size = 20 << 20
    thread.put([("", pa.record_batch({"value": pa.array([bytes(size)])}))])
    catch_up(thread)
    assert 3 * size - (32 << 20) < max(held) < 5 * size
    assert thread.working_bytes == 0, "it is written"
    thread.stop()


@pytest.mark.parametrize(("row_group_rows", "limit"), [(3_000, 1 << 30), (131_072, 4)])
def test_rows_wait_behind_a_row_group_and_no_more_than_one(row_group_rows: int, limit: int) -> None:
    batch = pa.record_batch(Feed(partitions=1, rows=1_000).chunk(1))
    size = batch.get_total_buffer_size()
    encoding, may_go_on = threading.Event(), threading.Event()
    held: list[int] = []

    class Slow(FakeFile):
        def write(self, data: Any, /) -> int:
            encoding.set()
            may_go_on.wait()
            held.append(thread.pending_bytes)
            return super().write(data)

    thread = encoder_thread(lambda folder: Slow(), limit * size, row_group_rows=row_group_rows)
    thread.put([("", batch)])
    assert encoding.wait(60)
    for _ in range(3):  # none of them waits for the file
        thread.put([("", batch)])
    queued = thread.pending_bytes

    def put_more() -> None:
        for _ in range(20):
            thread.put([("", batch)])

    putting = threading.Thread(target=put_more)
    putting.start()
    eventually(lambda: thread.pending_bytes > queued, "what waits for room is counted, too")
    may_go_on.set()
    putting.join()
    assert [file.rows for file in thread.finish().result()] == [24_000]
    assert 3 * size <= max(held) <= 7 * size, "a row group that is encoded, one that waits, and what is offered"
    thread.stop()


def test_rows_of_more_folders_than_files_may_be_open_wait_for_one_each() -> None:
    batch = pa.record_batch(Feed(partitions=1, rows=100).chunk(1))
    opened: list[str] = []
    settled: list[FakeFile] = []
    most = 0

    def stage(folder: str) -> FakeFile:
        nonlocal most
        opened.append(folder)
        most = max(most, thread.open_files + 1)
        return FakeFile()

    options = EncoderOptions(compression=Compression("none"), buffer_bytes=1)
    thread: EncoderThread[FakeFile] = EncoderThread(
        "encoder-test", ParquetEncoder, options, stage, 1 << 30, lambda exc: None, settled.extend, most_open=4
    )
    for _ in range(20):  # more pieces of a folder than are kept apart
        thread.put([(str(folder), batch) for folder in range(50)])
    catch_up(thread)
    assert opened == ["0", "1", "2", "3"]
    assert thread.pending_bytes >= 18 * 50 * batch.get_total_buffer_size() and not thread.crowded
    done = thread.finish().result()
    assert most <= 4 and sorted(opened, key=int) == [str(folder) for folder in range(50)], "one file a folder"
    assert [file.rows for file in done] == [2_000] * 50
    assert settled == done[: len(settled)] and 0 < len(done) - len(settled) <= 4, "a commit syncs what is left"
    assert thread.pending_bytes == thread.open_files == 0
    thread.stop()


def test_too_many_folders_for_the_memory_end_files_early_and_say_so() -> None:
    batch = pa.record_batch(Feed(partitions=1, rows=1_000).chunk(1))
    size = batch.get_total_buffer_size()
    folders: list[str] = []
    held: list[int] = []

    def stage(folder: str) -> FakeFile:
        folders.append(folder)
        held.append(thread.pending_bytes)
        return FakeFile()

    options = EncoderOptions(compression=Compression("none"), buffer_bytes=1)
    thread: EncoderThread[FakeFile] = EncoderThread(
        "encoder-test", ParquetEncoder, options, stage, 16 * size, lambda exc: None, most_open=4, file_bytes=0
    )
    for _ in range(3):
        for folder in range(40):
            thread.put([(str(folder), batch)])
    catch_up(thread)
    assert thread.crowded
    done = thread.finish().result()
    assert not thread.crowded, "that is of one roll"
    assert sum(file.rows for file in done) == 120_000 and set(folders) == set(map(str, range(40)))
    assert max(held) <= 20 * size
    thread.stop()


def test_a_failure_leaves_all_files_of_the_thread_alone() -> None:
    feed = Feed(partitions=1, rows=1_000)
    made: dict[str, FakeFile] = {}
    failures: list[BaseException] = []

    def stage(folder: str) -> FakeFile:
        if folder == "refused":
            raise OSError(errno.EMFILE, "too many files")
        return made.setdefault(folder, FakeFile())

    thread = encoder_thread(stage, failures=failures)
    thread.put([("refused", pa.record_batch(feed.chunk(1))), ("a", pa.record_batch(feed.chunk(1)))])
    eventually(lambda: failures and not feed.held_bytes, "the release, before the caller asks for the next thing")
    assert [str(failure) for failure in failures] == ["[Errno 24] too many files"]
    failures.clear()
    thread.drop()
    thread.put([("a", pa.record_batch(feed.chunk(1))), ("b", pa.record_batch(feed.chunk(1)))])
    catch_up(thread)
    made["a"].broken = True
    writes = made["b"].writes
    assert isinstance(thread.finish().exception(), OSError)
    thread.put([("b", pa.record_batch(feed.chunk(1)))])
    thread.drop()
    gc.collect()
    assert [str(failure) for failure in failures] == ["[Errno 5] broken"]
    assert made["b"].writes == writes
    assert feed.held_bytes == 0
    thread.put([("c", pa.record_batch(feed.chunk(1)))])
    assert thread.finish().result() == [made["c"]]
    thread.stop()
