"""Opening of a reader or a writer while its broker may still be starting."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastwire.errors import FastwireError, causes

from ..net.backoff import Backoff
from ..net.endpoint import ConnectionRefused
from .say import say

PATIENCE_S = 5.0
TELL_S = 1.0  # a pause that is shorter is not worth a line
RETRY_S = 0.5  # at most between two attempts

T = TypeVar("T")


async def open_when_up(open_: Callable[[], Awaitable[T]]) -> T:
    """Return what ``open_`` returns, calling it again while the broker refuses connections, for ``PATIENCE_S`` seconds.

    One line on standard error says that it waits. Raises the error of ``open_``: at once if it is another one.
    """
    now = asyncio.get_running_loop().time
    began = now()
    backoff = Backoff(most_s=RETRY_S)
    told = False
    while True:
        try:
            return await open_()
        except FastwireError as exc:
            waited_s = now() - began
            if waited_s >= PATIENCE_S or not is_refused(exc):
                raise
            if waited_s >= TELL_S and not told:
                told = True
                say(f"{exc}; retrying for {PATIENCE_S - waited_s:.0f} s", err=True)
        await asyncio.sleep(backoff.next())


def is_refused(error: BaseException) -> bool:
    """Return True if ``error`` is a refused connection, or was caused by one."""
    return any(isinstance(each, ConnectionRefused) for each in causes(error))
