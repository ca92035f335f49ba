"""Conformance tests of a system's source: each record lands once, and nothing is acknowledged before the commit."""

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow.parquet
import pytest

from ...dataset.proof.verify import verify
from ...sinks.base import Superseded
from ...sinks.registry import build_sink
from .scene import OPEN, TOPIC, MemorySink, Row, Run, Scene
from .suite import SystemSuite, on_uvloop


class SystemDelivery(SystemSuite):
    """The contract of ``systems.source.Source``, as a pipeline sees it."""

    # --- where reading begins

    @on_uvloop
    async def test_start_earliest(self, scene: Scene) -> None:
        """All records of all partitions land with topic, partition and key, in the order of their partition."""
        for number in range(12):
            scene.produce(10, number % 2)
        sink = MemorySink()
        await scene.land(sink)
        self._check(scene, sink)
        topic = self._grammar.topic(TOPIC)
        for row in sink.rows:
            key = None if "keys" in self.lacks else b"%d" % row.partition
            assert row == Row(topic, row.partition, key, row.value, ())
            assert row.value is not None
            assert row.value.startswith(b"%d:" % row.partition)

    @on_uvloop
    async def test_start_latest(self, scene: Scene) -> None:
        """Records that are older than the first start do not land, later ones do."""
        scene.produce(10, 0)
        scene.produce(10, 1)
        sink = MemorySink()
        async with scene.running(sink, start="latest") as run:
            await run.assigned(sink)
            later = scene.produce(10, 0) + scene.produce(10, 1)
            await run.until(lambda: len(sink.rows) >= 20, "the later records")
        assert sorted(sink.values) == sorted(later)

    @on_uvloop
    async def test_start_at_a_position(self, scene: Scene) -> None:
        """Reading begins after the position of the key ``start``."""
        self._needs("start positions")
        for partition in (0, 1):
            scene.produce(10, partition)
            scene.produce(10, partition)
        first, _ = self._start_example()
        ends = map(self._positions.format, scene.broker.end_positions(TOPIC))
        start = {f"{first.removesuffix('0')}{number}": end for number, end in enumerate(ends)}
        later = scene.produce(10, 0) + scene.produce(10, 1)
        sink = MemorySink()
        async with scene.running(sink, start=start) as run:
            await run.until(lambda: len(sink.rows) >= 20, "the later records")
        assert sorted(sink.values) == sorted(later)

    # --- where reading ends

    @on_uvloop
    async def test_a_run_ends_at_the_end_of_its_beginning(self, scene: Scene) -> None:
        """``end = "now"``: what is produced later does not land, and the pipeline ends by itself."""
        self._needs("ends")
        wanted = scene.produce(10, 0) + scene.produce(10, 1)
        sink = MemorySink()
        async with scene.running(sink, end="now") as run:
            await run.assigned(sink)
            later = scene.produce(10, 0) + scene.produce(10, 1)
            await run.end()
        self._check_end(sink, wanted, later)

    @on_uvloop
    async def test_a_bounded_run_keeps_its_end_over_restarts(self, scene: Scene) -> None:
        """A run whose records could not land ends at the same place later, and another one goes on from there."""
        self._needs("ends")
        wanted = scene.produce(10, 0) + scene.produce(10, 1)
        sink = MemorySink()
        sink.gate.clear()
        async with scene.running(sink, policy=OPEN, end="now") as run:
            await run.assigned(sink)
            sink.failures.append(Superseded("the first run lands nothing"))
            run.pipeline.drain("test")
            sink.gate.set()
            await run.end()
        assert not sink.rows
        later = scene.produce(10, 0) + scene.produce(10, 1)
        async with scene.running(sink, end="now") as run:
            await run.end()
        self._check_end(sink, wanted, later)
        async with scene.running(sink, end="now") as run:
            await run.end()
        self._check(scene, sink)

    @on_uvloop
    async def test_a_run_ends_at_a_position(self, scene: Scene) -> None:
        """``end`` as a table of positions; a run that has nothing left to read ends at once."""
        self._needs("ends", "start positions")
        wanted = scene.produce(10, 0) + scene.produce(10, 1)
        first, _ = self._start_example()
        ends = map(self._positions.format, scene.broker.end_positions(TOPIC))
        end = {f"{first.removesuffix('0')}{number}": at for number, at in enumerate(ends)}
        later = scene.produce(10, 0) + scene.produce(10, 1)
        sink = MemorySink()
        for _ in range(2):
            async with scene.running(sink, end=end) as run:
                await run.end()
        self._check_end(sink, wanted, later)

    def _check_end(self, sink: MemorySink, wanted: list[bytes], later: list[bytes]) -> None:
        """Check that the records before the end have landed, each once, and none behind it where it is exact."""
        values = sorted(sink.values)
        if "exact ends" in self.lacks:
            assert sorted(set(values)) == values
            values = [value for value in values if value not in later]
        assert values == sorted(wanted)

    # --- exactly once

    @on_uvloop
    async def test_a_dataset_holds_each_record_once_after_restarts(self, scene: Scene, tmp_path: Path) -> None:
        """Runs over one dataset land each record once, and ``verify`` agrees."""
        path = tmp_path / "dataset"
        config = scene.configured(path)
        for _ in range(3):
            for partition in (0, 1):
                scene.produce(50, partition)
                scene.produce(7, partition)
            await scene.land(build_sink(config, memory=64 << 20))
        files = [pyarrow.parquet.read_table(file, columns=["value"]) for file in path.glob("*.parquet")]
        assert sorted(value.as_py() for file in files for value in file["value"]) == sorted(scene.produced)
        report = verify(path)
        assert report.ok, report

    @on_uvloop
    async def test_a_dataset_that_vanishes_is_waited_for(self, scene: Scene, tmp_path: Path) -> None:
        """While the folder of the dataset is gone none is created, nothing acknowledged; then landing continues."""
        path, away = tmp_path / "dataset", tmp_path / "away"
        sink = build_sink(scene.configured(path), memory=64 << 20)
        async with scene.running(sink) as run:
            scene.produce(20, 0)
            await run.until(lambda: run.pipeline.figures.rows_committed == 20, "the first records")
            path.rename(away)
            scene.produce(20, 1)
            await run.until(lambda: "is gone" in (run.pipeline.waiting or ""), "a pipeline that waits for the folder")
            assert not path.exists(), "a folder was made where the dataset was"
            away.rename(path)
            await run.until(lambda: run.pipeline.figures.rows_committed == 40, "the later records")
        files = [pyarrow.parquet.read_table(file, columns=["value"]) for file in path.glob("*.parquet")]
        assert sorted(value.as_py() for file in files for value in file["value"]) == sorted(scene.produced)
        report = verify(path)
        assert report.ok, report
        await self._check_backlog(scene, 0)

    @on_uvloop
    async def test_a_pipeline_goes_on_where_it_was(self, scene: Scene) -> None:
        """Runs that were drained in the middle, and the next ones, land each record once."""
        sink = MemorySink()
        for _ in range(3):
            scene.produce(40, 0)
            scene.produce(40, 1)
            async with scene.running(sink) as run:
                await run.until(lambda: len(sink.rows) >= len(scene.produced) - 40, "most of the records")
        await scene.land(sink)
        self._check(scene, sink)

    @on_uvloop
    async def test_the_end_of_the_topic_ends_a_run(self, scene: Scene) -> None:
        """``--until-end`` ends when all records are committed and acknowledged, also without any, and a second time."""
        sink = MemorySink()
        await scene.land(sink)
        assert sink.rows == []
        assert scene.last_source is not None
        assert scene.last_source.confirms == ("groups" not in self.lacks), "confirms: False without groups, else True"
        scene.produce(10)
        await scene.land(sink)
        await scene.land(sink)
        self._check(scene, sink)
        await self._check_backlog(scene, 0)

    @on_uvloop
    async def test_a_void_roll_is_read_again(self, scene: Scene) -> None:
        """The records of a void roll arrive once more."""
        async with _open_roll(scene) as (sink, run):
            sink.failures.append(Superseded("the roll is void on purpose"))
            run.pipeline.commit_soon("test")
            await run.until(lambda: sink.opened == 2 and sink.staged == 40, "the same records")
        self._check(scene, sink)
        await self._check_backlog(scene, 0)

    # --- acknowledgements

    @on_uvloop
    async def test_nothing_is_confirmed_before_the_commit(self, scene: Scene) -> None:
        """The broker learns of progress only after the commit, and then of all of it."""
        self._needs("groups")
        held: list[tuple[int, int]] = []  # rows of the roll, and the backlog just before its commit
        sink = MemorySink()
        sink.before_commit = lambda rows: held.append((rows, self._backlog(scene))) if rows else None
        async with scene.running(sink, policy=OPEN) as run:
            await run.assigned(sink)
            for _ in range(3):
                # The later records show that the broker has read what was sent on receipt of the earlier ones.
                scene.produce(20)
                await run.until(lambda: sink.staged == 20, "the earlier records")
                scene.produce(20)
                await run.until(lambda: sink.staged == 40, "the later records")
                run.pipeline.commit_soon("test")
                await run.until(lambda: not sink.staged, "the commit")
                await self._check_backlog(scene, 0)
        self._check(scene, sink)
        assert held == [(40, 40)] * 3

    @on_uvloop
    async def test_records_that_were_not_committed_come_again(self, scene: Scene) -> None:
        """After a last commit that fails, the broker keeps every record for the next run."""
        async with _open_roll(scene) as (sink, _):
            sink.failures.append(Superseded("the commit of the shutdown fails"))
        assert sink.rows == []
        await self._check_backlog(scene, 40)
        await scene.land(sink)
        self._check(scene, sink)

    @on_uvloop
    async def test_a_drain_commits_and_confirms_what_was_taken(self, scene: Scene) -> None:
        """After SIGTERM everything received is committed and acknowledged, and the broker keeps the rest."""
        sink = MemorySink()
        for number in range(200):
            scene.produce(50, number % 2, size=1000)
        async with scene.running(sink, policy=OPEN) as run:
            await run.until(lambda: sink.staged, "the first records")
        assert 0 < len(sink.rows) == run.pipeline.figures.rows_committed
        left = len(scene.produced) - len(sink.rows)
        if "partial confirmation" in self.lacks:
            assert self._backlog(scene) >= left
        else:
            await self._check_backlog(scene, left)
        await scene.land(sink)
        self._check(scene, sink)

    # --- partitions that are taken away

    @on_uvloop
    async def test_lost_connections_cost_no_record(self, scene: Scene) -> None:
        """Connections that are lost while a roll is open cost no record and double none."""
        sink = MemorySink()
        async with scene.running(sink, policy=OPEN) as run:
            for last in (False, False, False, False, True):
                scene.produce(30, 0)
                scene.produce(30, 1)
                enough = len(scene.produced) - (0 if last else 30)
                await run.until(functools.partial(_received, sink, enough), f"{enough} records")
                if not last:
                    scene.broker.drop_connections()
        self._check(scene, sink)
        await self._check_backlog(scene, 0)

    @pytest.mark.parametrize("cut", [1, 10, 100, 1_000, 10_000])
    @on_uvloop
    async def test_connections_that_are_cut_anywhere(self, scene: Scene, cut: int) -> None:
        """A connection that ends in the middle of a frame, again and again, costs no record and doubles none."""
        sink = MemorySink()
        for number in range(4):
            scene.produce(50, number % 2, size=200)
            scene.broker.cut_after(cut * (number + 1))
        await scene.land(sink)
        self._check(scene, sink)

    @on_uvloop
    async def test_a_broker_that_restarts(self, scene: Scene) -> None:
        """Reading goes on when the broker is there again."""
        sink = MemorySink()
        async with scene.running(sink) as run:
            scene.produce(20)
            await run.until(lambda: sink.rows, "the first records")
            await scene.away()
            scene.produce(20)
            await run.until(lambda: len(sink.rows) >= 40, "the later records")
            assert run.pipeline.ready
        self._check(scene, sink)

    @on_uvloop
    async def test_another_consumer_takes_over(self, scene: Scene) -> None:
        """Two pipelines of one group and one dataset land each record once, also after one of them has left."""
        self._needs("takeover")
        sink = MemorySink()
        async with scene.running(sink) as one:
            scene.produce(20, 0)
            scene.produce(20, 1)
            await one.until(lambda: len(sink.rows) == 40, "the first records")
            async with scene.running(MemorySink(sink.log)) as two:
                await one.stop()
                scene.produce(20, 0)
                scene.produce(20, 1)
                await two.until(lambda: len(sink.rows) == 80, "the records of both partitions")
        self._check(scene, sink)
        await self._check_backlog(scene, 0)

    # --- topics that change

    @on_uvloop
    async def test_a_topic_that_is_created_again(self, scene: Scene) -> None:
        """The records of the new topic land, whether in the same log or in another; those of the old one stay."""
        self._needs("recreation")
        sink = MemorySink()
        async with scene.running(sink) as run:
            scene.produce(20)
            await run.until(lambda: len(sink.rows) == 20, "the records of the first topic")
            await self._check_backlog(scene, 0)
            scene.recreate()
            scene.produce(30)
            await run.until(lambda: len(sink.rows) >= 50, "the records of the second topic")
        self._check(scene, sink)

    @on_uvloop
    async def test_partitions_that_are_added_while_away(self, scene: Scene) -> None:
        """A partition that was added between two runs is read from its beginning, also with ``start = "latest"``."""
        self._needs("growth")
        sink = MemorySink()
        await scene.land(sink, start="latest")
        scene.broker.grow_topic(TOPIC, 3)
        scene.produce(10, 2)
        await scene.land(sink, start="latest")
        self._check(scene, sink)


def _received(sink: MemorySink, rows: int) -> bool:
    """Return True once ``rows`` records have landed or are in the open roll."""
    return len(sink.rows) + sink.staged >= rows


@asynccontextmanager
async def _open_roll(scene: Scene) -> AsyncIterator[tuple[MemorySink, Run]]:
    """Run a pipeline whose open roll has 20 records of each partition."""
    sink = MemorySink()
    async with scene.running(sink, policy=OPEN) as run:
        await run.assigned(sink)
        scene.produce(20, 0)
        scene.produce(20, 1)
        await run.until(lambda: sink.staged == 40, "an open roll")
        yield sink, run
