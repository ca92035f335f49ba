"""Waiting times, and which of many failures are told."""

import logging
import tracemalloc
from random import Random

import pytest

from fastwire_daemon.net.backoff import Backoff
from fastwire_daemon.runtime.logs import get_logger


def test_times_double_up_to_their_end_and_are_cut_by_a_part() -> None:
    backoff = Backoff(Random(1), first_s=1.0, most_s=8.0)
    times = [backoff.next() for _ in range(6)]
    assert all(0.8 * most <= time <= most for time, most in zip(times, (1, 2, 4, 8, 8, 8), strict=True))
    assert len(set(times)) == 6
    backoff.reset()
    assert backoff.next() <= 1.0


def test_a_thousand_backoffs_take_little_memory() -> None:
    """Each partition has one, and a generator of its own takes 2.5 kB."""
    tracemalloc.start()
    try:
        made = [Backoff() for _ in range(1000)]
        assert tracemalloc.get_traced_memory()[0] < 500 * len(made)
    finally:
        tracemalloc.stop()


def test_a_failure_that_lasts_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    log, backoff, levels = get_logger("backoff"), Backoff(), {}
    with caplog.at_level(logging.DEBUG, "fastwire.backoff"):
        for number in range(1, 31):
            backoff.failed(log, "it failed", ValueError("why"), topic="t")
            levels[number] = caplog.records[-1].levelno
        assert [number for number, level in levels.items() if level == logging.WARNING] == [1, 2, 4, 8, 10, 20, 30]
        assert set(levels.values()) == {logging.WARNING, logging.DEBUG}
        backoff.failed(log, "it failed", ValueError("why"), warn=True)
        assert caplog.records[-1].levelno == logging.WARNING
        backoff.reset()
        wait = backoff.failed(log, "it failed", ValueError("why"), topic="t")
    last = caplog.records[-1]
    assert (last.levelno, last.message) == (logging.WARNING, "it failed")
    assert vars(last)["fields"] == {"topic": "t", "error": "why", "retry_s": round(wait, 3)}
