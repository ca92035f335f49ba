"""The promises of a sink as tests."""

import functools
import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.position import PULSAR_EARLIEST, Coverage, Span

from ..sinks.base import Sink, Superseded
from .child import acked
from .feed import Feed
from .lock import warn_if_long

__all__ = ["SinkConformance"]

# Where the child is killed: at the n-th time it says a word, so many seconds later.
_KILLS = [
    ("committing", 1, 0.002),
    ("writing", 5, 0.001),
    ("committing", 2, 0.0),
    ("opening", 1, 0.1),
    ("committed", 1, 0.0),
    ("committing", 2, 0.005),
    ("writing", 2, 0.0),
    ("committing", 1, 0.0),
]


class SinkConformance:
    """Inherit, define :meth:`make_sink`, and run pytest."""

    exactly_once: ClassVar[bool] = True
    """Whether the sink remembers, beyond its process, what is durable."""

    several_writers: ClassVar[bool] = True
    """Whether two sinks may write to the same place at the same time (only asked of those that are exactly once)."""

    kills: ClassVar[int] = len(_KILLS)
    """How many processes are killed; each takes a second or two."""

    def make_sink(self, path: Path) -> Sink:
        """A new sink that writes to ``path``, which may not exist, or hold what an earlier one has written."""
        raise NotImplementedError

    def read_values(self, path: Path) -> list[bytes]:
        """The values of all rows that a reader finds at ``path``, in any order. Optional; tests of rows need it."""
        pytest.skip("read_values is not defined")

    def make_feed(self, start: Coverage | None = None) -> Feed:
        """The topic that the sink is fed from."""
        return Feed(partitions=2, rows=50, value_bytes=100, start=start)

    # --- the contract, in the order of its sentences

    def test_has_the_four_methods(self, tmp_path: Path) -> None:
        assert isinstance(self.make_sink(tmp_path / "sink"), Sink)

    def test_can_be_closed_without_having_been_opened(self, tmp_path: Path) -> None:
        self.make_sink(tmp_path / "sink").close()

    def test_knows_nothing_at_first(self, tmp_path: Path) -> None:
        with self._opened(tmp_path / "sink") as (sink, coverage):
            assert coverage == Coverage()
            assert sink.commit() == Coverage()

    def test_commit_returns_all_that_was_written(self, tmp_path: Path) -> None:
        feed, expected = self.make_feed(), Coverage()
        with self._opened(tmp_path / "sink") as (sink, _):
            for _ in range(3):
                for _ in range(2):
                    chunk = feed.chunk()
                    for span in chunk.spans():
                        expected.add(span)
                    sink.write(chunk)
                assert sink.commit() == expected
        self._check_rows(tmp_path / "sink", feed, expected)

    def test_commit_of_nothing_changes_nothing(self, tmp_path: Path) -> None:
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(feed.chunk())
            coverage = sink.commit()
            assert sink.commit() == coverage
            assert sink.commit() == coverage
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_a_returned_coverage_does_not_change_later(self, tmp_path: Path) -> None:
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(feed.chunk())
            first = sink.commit()
            value = first.to_json()
            sink.write(feed.chunk())
            sink.commit()
            assert first.to_json() == value

    def test_progress_without_rows_is_progress(self, tmp_path: Path) -> None:
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(marker_chunk([Span(log, PULSAR_EARLIEST, PULSAR_EARLIEST, 0) for log in feed.logs]))
            coverage = sink.commit()
            assert [coverage.start(log) for log in feed.logs] == [PULSAR_EARLIEST] * len(feed.logs)
            sink.write(feed.chunk())
            coverage = sink.commit()
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_entries_that_cannot_be_decoded_are_taken(self, tmp_path: Path) -> None:
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            chunk = feed.chunk(6, damaged=(1, 4))
            assert len(chunk.diverted) == 2
            spans = chunk.spans()
            sink.write(chunk)
            sink.write(feed.chunk(2, damaged=(0, 1)))
            coverage = sink.commit()
            assert all(coverage.covers(span.log, span.end) for span in spans)
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_memory_goes_back(self, tmp_path: Path) -> None:
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            for _ in range(3):
                for _ in range(10):
                    sink.write(feed.chunk())
                sink.commit()
                assert feed.held_bytes == 0
            sink.write(feed.chunk())
        assert feed.held_bytes == 0

    def test_what_is_durable_is_known_after_a_restart(self, tmp_path: Path) -> None:
        self._needs_memory()
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(feed.chunk())
            coverage = sink.commit()
            sink.write(feed.chunk())
            # Not committed: dropped by close.
        with self._opened(tmp_path / "sink") as (sink, found):
            assert found == coverage
            self._check_rows(tmp_path / "sink", feed, coverage)
            feed = self.make_feed(coverage)
            sink.write(feed.chunk())
            coverage = sink.commit()
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_what_another_writer_landed_is_not_landed_twice(self, tmp_path: Path) -> None:
        self._needs_memory()
        if not self.several_writers:
            pytest.skip("not made for several writers")
        path = tmp_path / "sink"
        feed, same = self.make_feed(), self.make_feed()
        with self._opened(path) as (one, _):
            one.write(marker_chunk([Span(log, PULSAR_EARLIEST, PULSAR_EARLIEST, 0) for log in feed.logs]))
            one.commit()
            with self._opened(path) as (other, _):
                one.write(feed.chunk())
                coverage = one.commit()
                with pytest.raises(Superseded):
                    self._write_and_commit(other, same.chunk())
                assert other.open() == coverage
                assert same.held_bytes == 0
                same = self.make_feed(coverage)
                other.write(same.chunk())
                coverage = other.commit()
            assert one.commit() == coverage
            self._check_rows(path, feed, coverage)

    def test_a_kill_at_any_time_loses_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "sink"
        for word, times, delay in _KILLS[: self.kills]:
            self._run_and_kill(path, word, times, delay)
            self._check_after_a_crash(path)

    def test_calls_do_not_hold_the_interpreter_lock(self, tmp_path: Path) -> None:
        """Warns only: what else the machine does is in the figure."""
        with self._opened(tmp_path / "sink") as (sink, _):
            feed = Feed(partitions=2, rows=1_000, value_bytes=100)

            def prepare() -> Callable[[], object]:
                return functools.partial(self._write_and_commit, sink, feed.chunk(16))

            warn_if_long("write and commit", prepare)

    # --- what they are made of

    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[Sink, Coverage]]:
        sink = self.make_sink(path)
        try:
            yield sink, sink.open()
        finally:
            sink.close()

    @staticmethod
    def _write_and_commit(sink: Sink, chunk: Chunk) -> None:
        sink.write(chunk)
        sink.commit()

    def _needs_memory(self) -> None:
        if not self.exactly_once:
            pytest.skip("the sink does not remember what is durable")

    def _check_rows(self, path: Path, feed: Feed, coverage: Coverage) -> None:
        """Each row that ``coverage`` holds is there once, and no other; at least once where that is all it promises."""
        if type(self).read_values is SinkConformance.read_values:
            return
        found, expected = sorted(self.read_values(path)), sorted(feed.values_of(coverage))
        if self.exactly_once:
            assert found == expected
        else:
            assert set(found) >= set(expected)

    def _run_and_kill(self, path: Path, word: str, times: int, delay: float) -> None:
        command = [sys.executable, "-m", "fastwire_daemon.testing.child", inspect.getfile(type(self))]
        command += [type(self).__qualname__, str(path)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr is not None
            said = []
            try:
                for line in child.stderr:
                    said.append(line)
                    if said.count(f"{word}\n") == times:
                        time.sleep(delay)
                        break
                else:
                    pytest.fail(f"the child ended by itself:\n{''.join(said)}")
            finally:
                child.kill()

    def _check_after_a_crash(self, path: Path) -> None:
        feed = self.make_feed()
        if self.exactly_once:
            with self._opened(path) as (_, coverage):
                pass
            told = acked(path)
            assert all(coverage.covers(log, end) for log in told.logs() if (end := told.end(log)) is not None)
        else:
            coverage = acked(path)
        self._check_rows(path, feed, coverage)
