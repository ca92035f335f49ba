"""Thousands of partitions: all are read, also after their broker was away, and the log has a few lines about them."""

import logging

import pytest

from tests.support.kafka.source_pipe import batches
from tests.support.kafka.source_scene import assert_once, reading, serving

PARTITIONS = 5_000
LINES = 20


async def test_five_thousand_partitions(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fastwire"):
        async with serving(PARTITIONS) as broker:
            broker.call(lambda: [broker.append("t", batches(at, 1, 1), at) for at in range(0, PARTITIONS, 2)])
            async with reading(broker) as pipe:
                await pipe.got(PARTITIONS // 2)
                broker.drop_connections()
                broker.call(lambda: [broker.append("t", batches(at, 1, 1), at) for at in range(1, PARTITIONS, 2)])
                await pipe.got(PARTITIONS)
                assert_once(pipe, PARTITIONS)
    assert len(caplog.records) <= LINES, [each.getMessage() for each in caplog.records[:40]]
