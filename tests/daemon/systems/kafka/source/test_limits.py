"""Sizes and times that a configuration names are in the requests: of a fetch, and of a group's member."""

from typing import Any

import pytest

from fastwire_daemon.devbroker.kafka import Request
from fastwire_daemon.systems.kafka.config import KafkaSourceConfig
from fastwire_daemon.systems.kafka.source import settings_from
from tests.support.kafka.source_pipe import batches
from tests.support.kafka.source_scene import reading, serving

NAMED = {"max_bytes": 5 << 20, "min_bytes": 70, "max_wait_ms": 250}


def configured(**keys: Any) -> KafkaSourceConfig:
    table = {"url": "kafka://127.0.0.1:9092", "topics": ["t"], "subscription": "g", "start": "earliest"}
    return KafkaSourceConfig.model_validate(table | keys)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_configuration_is_in_the_requests(protocol: str) -> None:
    named = settings_from(
        configured(
            fetch_max_bytes="5MiB",
            fetch_partition_bytes="1MiB",
            fetch_min_bytes=70,
            fetch_max_wait="250ms",
            rebalance_timeout="90s",
        )
    )
    heard: dict[str, Any] = {}

    def hear(request: Request, frame: bytes) -> bytes:
        heard.setdefault(request.api.name, request.body)
        return frame

    async with serving() as broker:
        broker.append("t", batches(0, 1))
        broker.tamper = hear
        limits, patience = named.limits, named.rebalance_timeout_s
        async with reading(broker, protocol=protocol, limits=limits, rebalance_timeout_s=patience) as pipe:
            await pipe.got(10)
    fetch = heard["Fetch"]
    assert {key: fetch[key] for key in NAMED} == NAMED
    assert fetch["topics"][0]["partitions"][0]["partition_max_bytes"] == 1 << 20
    member = heard["JoinGroup" if protocol == "classic" else "ConsumerGroupHeartbeat"]
    assert member["rebalance_timeout_ms"] == 90_000


def test_a_partition_has_no_more_than_a_response() -> None:
    assert settings_from(configured(fetch_max_bytes="2MiB")).limits.partition_bytes == 2 << 20
