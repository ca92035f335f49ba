"""Partitions that do not land while the others do: health, status, metrics, and the log line that comes again."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from fastwire_daemon.pipeline.impairments import Impairments
from fastwire_daemon.runtime.budget import Budget
from fastwire_daemon.runtime.health import Health
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.systems.source import LogStopped
from tests.daemon.runtime.test_metrics import samples
from tests.support.pipeline_bed import LOG, Bed

OTHER = replace(LOG, partition="1")


@pytest.fixture
async def bed() -> Any:
    """A running pipeline of two partitions."""
    bed = Bed()
    await bed.running()
    bed.source.logs.append(OTHER)
    yield bed
    if not bed.done:
        await bed.end()


async def test_a_stopped_partition_makes_a_pipeline_degraded(bed: Bed) -> None:
    assert (bed.pipeline.health, bed.pipeline.impairments) == (Health.HEALTHY, [])
    bed.pipeline.on_stopped(1, LogStopped("it is refused", "refused"))
    status = bed.pipeline.status()
    assert (status["state"], status["health"]) == ("running", "degraded")
    assert status["degraded"] == ["1 of 2 partitions is stopped"]
    assert status["stopped_partitions"] == {f"{OTHER.topic} 1": "it is refused"}
    assert [str(error) for error in bed.pipeline.parts.stopped.values()] == ["it is refused"]
    bed.pipeline.look()
    found = samples(bed.metrics)
    assert found['fastwire_source_stopped_partitions{pipeline="p",reason="refused"}'] == 1
    assert found['fastwire_source_stopped_partitions{pipeline="p",reason="lost"}'] == 0
    assert found['fastwire_pipeline_health{health="degraded",pipeline="p"}'] == 1
    assert found['fastwire_pipeline_health{health="healthy",pipeline="p"}'] == 0
    await bed.end()
    assert bed.pipeline.health is Health.DEGRADED, "also behind its end"


async def test_a_topic_that_was_made_again_is_told_and_is_no_trouble(bed: Bed) -> None:
    bed.pipeline.on_stopped(1, LogStopped("the topic was deleted and made again", "recreated"))
    status = bed.pipeline.status()
    assert (status["health"], status["degraded"], status["stopped_partitions"]) == ("healthy", [], {})
    assert status["recreated_partitions"] == {f"{OTHER.topic} 1": "the topic was deleted and made again"}
    assert bed.pipeline.parts.stopped == {}


async def test_memory_that_does_not_come_back_is_told(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "held_s", 29.0)
    assert bed.pipeline.impairments == []
    monkeypatch.setattr(Budget, "held_s", 30.0)
    assert bed.pipeline.health is Health.DEGRADED
    (said,) = bed.pipeline.impairments
    assert said.startswith("nothing has been read for 30 s: ") and "bytes of the memory budget are in use" in said


async def test_a_sink_that_waits_and_a_table_that_takes_nothing_are_told(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bed.sink, "waiting", "no space left")
    monkeypatch.setattr(bed.sink, "unpublished", "the table has a constraint", raising=False)
    assert bed.pipeline.health is Health.DEGRADED
    assert bed.pipeline.impairments == [
        "the sink waits: no space left",
        "what lands is not in the table: the table has a constraint",
    ]


def test_a_partition_that_cannot_be_read_counts_after_half_a_minute() -> None:
    metrics = DaemonMetrics("0")
    impairments = Impairments("p", metrics.pipeline("p"))
    impairments.logs = [LOG, OTHER]
    series = 'fastwire_source_unreadable_partitions{pipeline="p"}'
    for now, waiting, count in (
        (0.0, {1: "no leader"}, 0),
        (29.0, {1: "no leader"}, 0),
        (30.0, {1: "no leader"}, 1),
        (31.0, {}, 0),
        (32.0, {1: "no leader"}, 0),
    ):
        impairments.look(waiting, now)
        assert samples(metrics)[series] == count, now
        assert list(impairments.sentences(None, None, "")) == ["1 of 2 partitions cannot be read at the moment"] * count
        assert len(impairments.status()["unreadable_partitions"]) == count


def test_the_log_says_again_and_again_what_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    impairments = Impairments("p", DaemonMetrics("0").pipeline("p"))
    impairments.logs = [replace(LOG, partition=str(number)) for number in range(20)]
    for index in range(7):
        impairments.stop(index, LogStopped(f"bad value in {index}", "undecodable"), now=100.0)
        impairments.stop(index, LogStopped("told twice", "other"), now=100.0)
    assert len(caplog.records) == 7
    caplog.clear()
    for now in (110.0, 699.0):
        impairments.look({}, now)
    assert caplog.records == []
    for now, lines in ((700.0, 1), (701.0, 1), (1299.0, 1), (1300.0, 2)):
        impairments.look({}, now)
        assert len(caplog.records) == lines, now
    line: Any = caplog.records[0]
    assert line.levelno == logging.ERROR and "still stopped" in line.getMessage()
    assert line.fields == {
        "pipeline": "p",
        "stopped": 7,
        "partitions": [str(LOG).replace("0", str(number)) for number in range(5)],
        "why": "bad value in 0",
    }
