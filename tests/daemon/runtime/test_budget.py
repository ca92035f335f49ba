"""The byte budget: levels, who is told, and what it means for permits."""

import asyncio
import contextvars

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire_daemon.runtime import resident
from fastwire_daemon.runtime.budget import Budget, Level, permit_window
from fastwire_daemon.runtime.logs import of_pipeline


def test_memory_that_keeps_everything_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("fastwire_daemon.runtime.budget.time.monotonic", lambda: now)
    pool = Pool()
    budget = Budget(pool)
    pool.used = 1001
    assert (budget.check(), budget.held_s) == (Level.STOP, 0.0)
    now = 130.0
    pool.used = 900
    assert (budget.check(), budget.held_s) == (Level.HOLD, 30.0)
    budget.arrived(10)  # what was under way
    assert budget.held_s == 0.0
    now = 140.0
    assert budget.held_s == 10.0
    pool.used = 0
    assert (budget.check(), budget.held_s) == (Level.FREE, 0.0)


class Pool:
    limit = 1000
    used = 0
    kept = 0
    receiving = 0
    charged = 0

    def trim(self, keep: int = 0) -> None:
        self.kept = min(self.kept, keep)


def test_levels_are_left_lower_than_they_are_reached() -> None:
    pool = Pool()
    budget = Budget(pool)
    told: list[Level] = []
    budget.watch(told.append)
    for used, level in [
        (800, Level.FREE),
        (801, Level.HOLD),
        (780, Level.HOLD),
        (750, Level.FREE),
        (1000, Level.HOLD),
        (1001, Level.STOP),
        (960, Level.STOP),
        (950, Level.HOLD),
        (0, Level.FREE),
        (5000, Level.STOP),
        (0, Level.FREE),
    ]:
        pool.used = used
        assert budget.check() is level
        assert budget.level is level
    assert told == [
        Level.HOLD,
        Level.FREE,
        Level.HOLD,
        Level.STOP,
        Level.HOLD,
        Level.FREE,
        Level.STOP,
        Level.FREE,
    ]


def test_incomplete_frames_that_hold_the_memory_are_completed() -> None:
    pool = Pool()
    budget = Budget(pool)
    pool.used, pool.receiving = 1100, 900
    assert budget.check() is Level.STOP  # the pipeline will release what is under way
    pool.receiving, pool.charged = 800, 176
    assert budget.check() is Level.FINISH
    held = [1]
    budget.count(lambda: held[0])
    assert budget.check() is Level.STOP
    pool.used = 960
    assert budget.check() is Level.FINISH
    pool.used = 949
    assert budget.check() is Level.HOLD


def test_chunks_do_not_wait_for_the_tick() -> None:
    """Other connections must not decode another entry each before reading stops."""
    pool = Pool()
    budget = Budget(pool)
    told: list[Level] = []
    budget.watch(told.append)
    pool.used = 1001
    budget.arrived(10)
    assert told == [Level.STOP]


def test_who_comes_late_is_told_at_once() -> None:
    pool = Pool()
    budget = Budget(pool)
    pool.used = 900
    budget.check()
    told: list[Level] = []
    budget.watch(told.append)
    assert told == [Level.HOLD]
    budget.unwatch(told.append)
    pool.used = 0
    budget.check()
    assert told == [Level.HOLD]


def test_watchers_run_in_the_context_of_their_own_pipeline() -> None:
    pool = Pool()
    budget = Budget(pool)
    told: list[str] = []

    def watch(pipeline: str) -> None:
        of_pipeline.set(pipeline)
        budget.watch(lambda level: told.append(of_pipeline.get()))

    for pipeline in ("a", "b"):
        contextvars.copy_context().run(watch, pipeline)
    pool.used = 900
    contextvars.copy_context().run(budget.check)
    assert told == ["a", "b"]


def test_estimates_count_like_blocks() -> None:
    pool = Pool()
    budget = Budget(pool)
    pool.used = 500
    held = [600]
    budget.count(lambda: held[0])
    budget.count(held.__len__)
    assert budget.used == 1101
    assert budget.check() is Level.STOP
    held[0] = 100
    assert budget.used == 601
    budget.uncount(held.__len__)
    budget.uncount(held.__len__)
    assert budget.used == 600
    assert budget.limit == 1000


def test_free_blocks_go_back_where_they_do_not_fit_beside_all_that_is_in_use() -> None:
    pool = Pool()
    budget = Budget(pool)
    pool.used, pool.kept = 300, 500
    budget.check()
    assert pool.kept == 500
    budget.count(lambda: 400)
    budget.check()
    assert pool.kept == 300
    pool.used = 900
    budget.check()
    assert pool.kept == 0


def test_free_blocks_go_back_at_the_end() -> None:
    """The exit of the process touches all libraries: free blocks must not be resident beside them."""
    pool = Pool()
    budget = Budget(pool)
    pool.kept = 500
    budget.check()
    assert pool.kept == 500
    budget.stop()
    assert pool.kept == 0


def test_behind_a_large_chunk_reading_stops_while_there_is_room_for_another() -> None:
    pool = Pool()
    pool.limit = 256 << 20

    budget = Budget(pool)
    told: list[Level] = []
    budget.watch(told.append)
    pool.used = pool.limit * 7 // 10
    budget.arrived(16 << 20)  # as large as many small entries make it
    assert budget.level is Level.FREE
    pool.used += 26 << 20
    budget.arrived(26 << 20)
    assert told == [Level.STOP]
    pool.used = pool.limit // 4
    assert budget.check() is Level.FREE
    budget.arrived(1 << 30)
    pool.used = pool.limit // 2
    assert budget.check() is Level.FREE
    pool.used += 1
    assert budget.check() is Level.STOP


def test_of_a_small_budget_an_eighth_is_a_large_chunk() -> None:
    pool = Pool()
    pool.limit = 64 << 20
    budget = Budget(pool)
    pool.used = 40 << 20
    budget.arrived(8 << 20)
    assert budget.level is Level.FREE
    budget.arrived((8 << 20) + 1)
    assert budget.check() is Level.FREE
    pool.used = 50 << 20
    assert budget.check() is Level.STOP


async def test_it_looks_by_itself() -> None:
    pool = Pool()

    budget = Budget(pool)
    told: asyncio.Queue[Level] = asyncio.Queue()
    budget.watch(told.put_nowait)
    budget.start()
    budget.start()
    pool.used = 900
    assert await told.get() is Level.HOLD
    pool.used = 0
    assert await told.get() is Level.FREE
    budget.stop()
    budget.stop()


@given(
    limit=st.integers(1, 1 << 40),
    consumers=st.integers(0, 5000),
    permit_bytes=st.integers(0, 1 << 30),
    most=st.integers(1, 10_000),
)
def test_permits_of_all_stand_for_a_quarter_at_most(limit: int, consumers: int, permit_bytes: int, most: int) -> None:
    window = permit_window(limit, consumers, permit_bytes, most)
    assert 1 <= window <= most
    if window > 1:
        assert window * permit_bytes * consumers <= limit / 4


async def test_resident_memory_is_looked_at_with_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Library pages go back when resident memory is 16 MiB beyond the budget, or the level is not free."""
    pool = Pool()
    now, size, released, trimmed = [10.0], [0], list[float](), list[float]()
    monkeypatch.setattr(resident, "resident_bytes", lambda: size[0])
    monkeypatch.setattr(resident, "release_library_pages", lambda: released.append(now[0]))
    monkeypatch.setattr(resident, "release_heap_pages", lambda: trimmed.append(now[0]))
    looked = asyncio.Event()

    budget = Budget(pool)
    resident.ResidentMemory(budget, lambda: now[0])
    budget.on_tick(looked.set)
    budget.start()
    await looked.wait()
    assert released == []
    size[0] = pool.limit + (16 << 20) + 1
    for moment, times in ((10.0, 1), (10.005, 1), (10.0625, 2)):
        now[0] = moment
        looked.clear()
        await looked.wait()
        assert len(released) == times
    size[0], pool.used, now[0] = 0, 900, 11.0
    budget.check()
    assert released == [10.0, 10.0625, 11.0]
    assert not trimmed
    size[0], now[0] = pool.limit + (64 << 20) + 1, 12.0
    pool.used = 1001
    budget.check()
    assert trimmed == [12.0]
    budget.stop()
