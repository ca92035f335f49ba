"""Connections that a broker closes because they are not used."""

import logging

import pytest

from tests.support.kafka.source_scene import reading, serving
from tests.support.source_pipe import until


async def test_an_idle_connection_that_a_broker_closes_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as broker, reading(broker) as pipe:
        await pipe.granted()
        kept = pipe.source.cluster.links  # the one with partitions may be opened behind the grant
        await until(lambda: {link.carries for link in kept.values()} == {True, False}, "a connection of each kind")
        links = list(kept.values())
        idle = next(link for link in links if not link.carries)
        await until(lambda: not idle._waiting, "no request in flight")
        with caplog.at_level(logging.INFO, "fastwire"):
            idle.transport.abort(ConnectionResetError())
            await until(lambda: idle.lost.done(), "the end")
            assert idle.was_idle and pipe.source.status()["reconnects"] == {}
            assert [each.levelname for each in caplog.records if "idle connection" in each.getMessage()] == ["INFO"]
            busy = next(link for link in links if link.carries)
            busy.transport.abort(ConnectionResetError())
            await until(lambda: busy.lost.done(), "the end")
            assert not busy.was_idle and pipe.source.status()["reconnects"] == {"lost": 1}
            assert [each.levelname for each in caplog.records if each.getMessage() == "connection lost"] == ["WARNING"]
