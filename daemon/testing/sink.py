"""Conformance tests of a sink."""

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
from fastwire.coverage import Coverage
from fastwire.position import Span
from fastwire.pulsar.position import PULSAR_EARLIEST

from ..sinks.base import Sink, Superseded
from .child import acked
from .feed import Feed
from .lock import warn_if_long

# When the child is killed: the step, the count of that step, and a delay in seconds after it.
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
    """True if the sink knows its durable Coverage after a restart."""

    several_writers: ClassVar[bool] = True
    """True if two sinks may write to the same path at the same time (used with ``exactly_once`` only)."""

    kills: ClassVar[int] = len(_KILLS)
    """Number of child processes that are killed; each takes a second or two."""

    def make_sink(self, path: Path) -> Sink:
        """Return a new sink for ``path``, which may not exist, or hold the output of an earlier sink."""
        raise NotImplementedError

    def read_values(self, path: Path) -> list[bytes]:
        """Return the values of all rows that a reader finds at ``path``, in any order. Optional; row tests need it."""
        pytest.skip("read_values is not defined")

    def make_feed(self, start: Coverage | None = None) -> Feed:
        """Return the topic that feeds the sink."""
        return Feed(partitions=2, rows=50, value_bytes=100, start=start)

    # --- the contract, in the order of its sentences

    def test_has_the_four_methods(self, tmp_path: Path) -> None:
        """The sink has the methods of the contract."""
        assert isinstance(self.make_sink(tmp_path / "sink"), Sink)

    def test_can_be_closed_without_having_been_opened(self, tmp_path: Path) -> None:
        """``close`` works without ``open``."""
        self.make_sink(tmp_path / "sink").close()

    def test_knows_nothing_at_first(self, tmp_path: Path) -> None:
        """A new sink has an empty Coverage."""
        with self._opened(tmp_path / "sink") as (sink, coverage):
            assert coverage == Coverage()
            assert sink.commit() == Coverage()

    def test_commit_returns_all_that_was_written(self, tmp_path: Path) -> None:
        """``commit`` returns the Coverage of all written chunks."""
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
        """``commit`` without new chunks returns the same Coverage."""
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(feed.chunk())
            coverage = sink.commit()
            assert sink.commit() == coverage
            assert sink.commit() == coverage
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_a_returned_coverage_does_not_change_later(self, tmp_path: Path) -> None:
        """A returned Coverage is a copy."""
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(feed.chunk())
            first = sink.commit()
            value = first.to_json()
            sink.write(feed.chunk())
            sink.commit()
            assert first.to_json() == value

    def test_progress_without_rows_is_progress(self, tmp_path: Path) -> None:
        """A chunk without rows moves the Coverage."""
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            sink.write(marker_chunk([Span(log, PULSAR_EARLIEST, PULSAR_EARLIEST, 0) for log in feed.logs]))
            coverage = sink.commit()
            assert [coverage.start(log) for log in feed.logs] == [PULSAR_EARLIEST] * len(feed.logs)
            sink.write(feed.chunk())
            coverage = sink.commit()
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_entries_that_cannot_be_decoded_are_taken(self, tmp_path: Path) -> None:
        """Dead letters are taken and count in the Coverage."""
        feed = self.make_feed()
        with self._opened(tmp_path / "sink") as (sink, _):
            chunk = feed.chunk(6, damaged=(1, 4))
            assert len(chunk.dead_letters) == 2
            spans = chunk.spans()
            sink.write(chunk)
            sink.write(feed.chunk(2, damaged=(0, 1)))
            coverage = sink.commit()
            assert all(coverage.covers(span.log, span.end) for span in spans)
        self._check_rows(tmp_path / "sink", feed, coverage)

    def test_memory_goes_back(self, tmp_path: Path) -> None:
        """The sink holds no memory of chunks after ``commit`` or ``close``."""
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
        """``open`` returns the committed Coverage, without the chunks that were not committed."""
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
        """A commit of records that another writer has committed raises Superseded."""
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
        """A killed process loses no acknowledged record, and duplicates none if the sink is exactly-once."""
        path = tmp_path / "sink"
        for word, times, delay in _KILLS[: self.kills]:
            self._run_and_kill(path, word, times, delay)
            self._check_after_a_crash(path)

    def test_calls_do_not_hold_the_interpreter_lock(self, tmp_path: Path) -> None:
        """No call holds the interpreter lock for long; warns only, because other load disturbs the measurement."""
        with self._opened(tmp_path / "sink") as (sink, _):
            feed = Feed(partitions=2, rows=1_000, value_bytes=100)

            def prepare() -> Callable[[], object]:
                return functools.partial(self._write_and_commit, sink, feed.chunk(16))

            warn_if_long("write and commit", prepare)

    # --- parts of the tests

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
        """Check that the rows are those of ``coverage``, each once, or at least once without ``exactly_once``."""
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
