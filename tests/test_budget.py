"""The byte budget: levels, who is told, and what it means for permits."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from fastwire_daemon.budget import Budget, Level, permit_window


class Pool:
    limit = 1000
    used = 0


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


def test_estimates_count_like_blocks() -> None:
    pool = Pool()
    budget = Budget(pool)
    pool.used = 500
    budget.charge("encoder", 600)
    assert budget.used == 1100
    assert budget.check() is Level.STOP
    budget.charge("encoder", 100)
    assert budget.used == 600
    budget.charge("encoder", 0)
    budget.charge("nobody", 0)
    assert budget.used == 500
    assert budget.limit == 1000


def test_it_looks_by_itself() -> None:
    pool = Pool()

    async def main() -> None:
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

    asyncio.run(main())


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
