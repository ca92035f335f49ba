"""The backlog of the last hour."""

from fastwire_daemon.runtime.rates import MINUTES, LagHistory


def test_an_hour_of_backlog_is_kept_by_minute() -> None:
    history, now = LagHistory(), 6000.0
    assert history.status(now) == []
    for second, backlog in ((0, 7), (30, 9), (59, 8), (60, None), (61, 3), (200, None), (300, 0)):
        history.add(backlog, now + second)
    assert history.status(now + 300) == [9, 3, None, None, None, 0], "the largest of each minute, and gaps"
    assert history.status(now + 420) == [9, 3, None, None, None, 0, None, None], "nothing is known since"
    history.add(4, 5000.0)
    assert history.status(5000.0)[-2:] == [None, 4], "the clock was set back"
    for minute in range(3 * MINUTES):
        history.add(minute, 10_000.0 + 60 * minute)
    assert history.status(10_000.0 + 60 * (3 * MINUTES - 1)) == list(range(2 * MINUTES, 3 * MINUTES))
    history.add(1, 1e9)
    assert history.status(1e9) == [*[None] * (MINUTES - 1), 1]
