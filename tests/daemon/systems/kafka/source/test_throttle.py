"""Quotas: a broker that throttles is obeyed, and seen by metrics, status and log."""

import logging

import pytest

from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.systems.kafka.throttle import PERIOD_S, Throttling
from tests.daemon.runtime.test_metrics import samples
from tests.support.kafka.source_pipe import KafkaPipe, batches
from tests.support.kafka.source_scene import assert_once, reading, serving
from tests.support.source_pipe import until

SECONDS = 'fastwire_source_throttled_seconds_total{pipeline="p"}'


def longest(pipe: KafkaPipe) -> float:
    """Return the wait of the most throttled connection, as the status page has it."""
    return max((float(one["throttled_s"]) for one in pipe.source.status()["connections"]), default=0.0)


async def test_a_throttle_shows_in_metrics_and_status_and_costs_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    metrics = DaemonMetrics("0")

    with caplog.at_level(logging.INFO, "fastwire.source"):
        async with serving() as broker, reading(broker, metrics=metrics.pipeline("p")) as pipe:
            await pipe.granted()
            broker.throttle(40, 5)
            broker.append("t", batches(0, 50))
            await pipe.got(500)
            assert_once(pipe, 500)
            await until(lambda: samples(metrics)[SECONDS] > 0.15, "all five", lambda: samples(metrics)[SECONDS])
            status = pipe.source.status()
            assert status["throttled"]["seconds_total"] == pytest.approx(samples(metrics)[SECONDS], abs=0.001)
            assert status["reconnects"] == {}
            broker.throttle(60_000)
            await until(lambda: longest(pipe) > 20, "a long one", lambda: pipe.source.status())
            assert pipe.source.status()["throttled"]["now"]
    told = [record for record in caplog.records if "throttles" in record.message]
    assert [record.levelno for record in told] == [logging.WARNING]


def test_a_period_of_throttles_is_one_line_at_its_beginning_and_one_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    throttling = Throttling(None)
    with caplog.at_level(logging.INFO, "fastwire.source"):
        for now in range(100, 200, 10):
            throttling.throttled("b:1", 5.0, 5.0, now)
            throttling.look(now + 5)
        assert len(caplog.records) == 1
        throttling.look(195 + PERIOD_S - 1)
        assert len(caplog.records) == 1
        throttling.look(195 + PERIOD_S)
        assert [record.__dict__["fields"] for record in caplog.records] == [
            {"broker": "b:1", "throttle_s": 5.0},
            {"lasted_s": 95, "throttled_s": 50.0},
        ]
        throttling.throttled("b:2", 1.0, 1.0, 300)
        assert len(caplog.records) == 3
    assert throttling.status(300.5) == {"seconds_total": 51.0, "now": True}
    assert throttling.status(301) == {"seconds_total": 51.0, "now": False}
