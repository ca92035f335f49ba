"""Topics and subscriptions of the client as they come and go: watched patterns, names, refusals that come later."""

import asyncio
import logging
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.pattern import parse_pattern
from fastwire_daemon.devbroker.base import RefusedError
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.support.pulsar.client_scene import playing, take, values
from tests.support.source_pipe import entries, until

NEVER_S = 3600.0


def refusing(broker: PulsarDevBroker, monkeypatch: pytest.MonkeyPatch, name: str, code: "pb.ServerError") -> None:
    """Let the broker refuse every subscription to ``name`` from now on."""
    topic_for = broker.topic_for

    def refused(asked: str, **more: Any) -> Any:
        if asked.endswith(name):
            raise RefusedError(code, "not for you")
        return topic_for(asked, **more)

    monkeypatch.setattr(broker, "topic_for", refused)


@pytest.mark.parametrize("reading", [False, True])
async def test_a_watched_pattern_is_not_polled(reading: bool) -> None:
    """The broker notifies of new topics: they are read at once, from their beginning, however rarely it is polled."""
    async with playing() as (broker, client):
        broker.create_topic("pat-a")
        pattern = parse_pattern("pat-.*")
        consumer: Any = (
            client.read(pattern, "latest", partition_poll_s=NEVER_S)
            if reading
            else client.subscribe(pattern, "s", partition_poll_s=NEVER_S)
        )
        async with consumer:
            broker.create_topic("pat-b")
            broker.append("pat-b", entries(0, 1))
            (chunk,) = await take(consumer, 10)
            assert values(chunk)[0] == b"0:0"
            broker.delete_topic("pat-b")
            broker.create_topic("pat-b")
            broker.append("pat-b", entries(1, 1))
            (chunk,) = await take(consumer, 10)
            assert values(chunk)[0] == b"1:0"


async def test_every_consumer_has_a_name() -> None:
    async with playing(2) as (broker, client):
        async with (
            client.subscribe("t", "s", type="shared") as one,
            client.subscribe("t", "s", type="shared") as other,
            client.subscribe("t", "s", type="shared", name="mine") as named,
        ):
            names = [state.name for state in broker.consumers("t", "s")]
            assert sorted(names) == sorted([one.name, other.name, "mine"] * 2)
            assert one.name and other.name and one.name != other.name
            assert named.name == "mine"


async def test_non_persistent_topics_are_refused() -> None:
    """A real broker gives each of their messages the position 0:0, so all but the first would pass for duplicates."""
    async with playing() as (_, client):
        for topics in ("non-persistent://public/default/n", ["t", "non-persistent://public/default/n"]):
            with pytest.raises(ValueError, match="non-persistent topics are not read"):
                client.subscribe(topics, "s")
            with pytest.raises(ValueError, match="non-persistent topics are not read"):
                client.read(topics)


async def test_a_subscription_that_cannot_come_back_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with playing() as (broker, client):
            broker.append("t", entries(0, 1))
            async with client.subscribe("t", "s", start="earliest") as consumer:
                await take(consumer, 10)
                with monkeypatch.context() as patch:
                    refusing(broker, patch, "/t", pb.AuthorizationError)
                    broker.close_consumers("t", "s")
                    await until(lambda: bool(caplog.records), "a word")
                    (told, *_) = caplog.records
                    assert told.message == "cannot subscribe, retrying"
                    assert "AuthorizationError: not for you" in told.fields["error"]  # type: ignore[attr-defined]
                broker.append("t", entries(1, 1))
                (chunk,) = await take(consumer, 10)
                assert values(chunk)[0] == b"1:0"


async def test_a_later_topic_that_is_refused_fails_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing() as (broker, client):
        refusing(broker, monkeypatch, "pat-b", pb.AuthorizationError)
        async with client.subscribe(parse_pattern("pat-.*"), "s") as consumer:
            broker.create_topic("pat-b")
            with pytest.raises(FastwireError, match="pat-b: the subscription is refused: AuthorizationError"):
                await consumer.receive()


async def test_a_poll_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fastwire.source"):
        async with playing(1) as (broker, client):
            async with client.subscribe("t", "s", partition_poll_s=0.05) as consumer:

                async def failing(*_: Any, **__: Any) -> int:
                    raise FastwireError("no answer")

                with monkeypatch.context() as patch:
                    patch.setattr(consumer.cluster, "partitions", failing)
                    await until(lambda: bool(caplog.records), "a word")
                assert caplog.records[0].message == "cannot look for new topics and partitions"
                broker.grow_topic("t", 2)
                broker.append("t-partition-1", entries(0, 1))
                (chunk,) = await asyncio.wait_for(take(consumer, 10), 60)
                assert chunk.message_id(0).partition == 1
