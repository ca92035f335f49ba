"""Connections of every embedded broker."""

import asyncio
import gc
import socket

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.server import held


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_who_is_accepted_while_the_broker_stops_is_let_go() -> None:
    """asyncio accepts in one turn of the loop and makes the connection in the next: the listener may go in between."""
    broker = KafkaDevBroker()
    await broker.start()
    with socket.create_connection((broker.host, broker.port), timeout=20) as client:
        for _ in range(2):
            await asyncio.sleep(0)  # so much is accepted, and nothing made of it
        await broker.stop()
        try:
            assert client.recv(1) == b""
        except ConnectionError:
            pass
    gc.collect()  # a socket that was left open says so now
    assert broker.connections == set()


async def test_the_ports_of_a_broker_that_restarts_stay_its_own() -> None:
    broker = KafkaDevBroker()
    await broker.start()
    place = broker.host, broker.port
    await broker.stop()
    with held(broker.host, broker.ports):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(place)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)
        await broker.start()
    assert (broker.host, broker.port) == place
    with socket.create_connection(place):
        pass
    await broker.stop()
