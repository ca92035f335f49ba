"""The wait for the name of a producer, which the broker gives to one connection at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastwire.errors import FastwireError, causes
from fastwire.pulsar.format.server_error import Remedy
from fastwire.pulsar.protocol.request import BrokerError

from ...net.backoff import Backoff

BUSY_S = 120.0  # a broker drops the connection of a machine that is gone after one or two keep-alive intervals
T = TypeVar("T")


async def in_turn(open_producer: Callable[[], Awaitable[T]]) -> T:
    """Return what ``open_producer`` does, once the producer of the same name that is connected is gone.

    Raises its FastwireError for any other reason, and if the other one stays for longer than ``BUSY_S``.
    """
    backoff, loop = Backoff(most_s=2.0), asyncio.get_running_loop()
    give_up_at = loop.time() + BUSY_S
    while True:
        try:
            return await open_producer()
        except FastwireError as exc:
            if not _is_busy(exc) or loop.time() >= give_up_at:
                raise
        await asyncio.sleep(backoff.next())


def _is_busy(error: BaseException) -> bool:
    """Return True if another producer of the name is connected, as far as the broker knows."""
    return any(isinstance(each, BrokerError) and each.remedy is Remedy.TURN for each in causes(error))
