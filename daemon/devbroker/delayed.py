"""Timers that can be restarted, and requests that are held back until there is news."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


class Timer:
    """Calls a function once, on the running event loop, unless it is started again or cancelled before that."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def start(self, delay_s: float, function: Callable[..., object], *args: object) -> None:
        """Call ``function`` in ``delay_s`` seconds; an earlier call that is still to come is cancelled."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_later(delay_s, function, *args)

    def cancel(self) -> None:
        """Cancel the call that is still to come, if there is one."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


@dataclass(slots=True, eq=False)
class _Held:
    connection: object
    answer: Callable[[bool], bool]
    timer: Timer = field(default_factory=Timer)


class HeldRequests:
    """Requests that are answered when the broker has enough for them, or when their time is over."""

    def __init__(self) -> None:
        self._held: set[_Held] = set()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, connection: object, wait_s: float, answer: Callable[[bool], bool]) -> None:
        """Hold a request of ``connection`` back for at most ``wait_s`` seconds.

        ``answer`` is called after each ``wake``, and with True when the time is over. It sends the response if there is
        enough for one, or if the time is over, and returns whether it did.
        """
        held = _Held(connection, answer)
        held.timer.start(wait_s, self._try, held, True)
        self._held.add(held)

    def wake(self) -> None:
        """Let all held requests look again, in the next turn of the loop."""
        for held in tuple(self._held):
            asyncio.get_running_loop().call_soon(self._try, held, False)

    def drop(self, connection: object) -> None:
        """Forget the held requests of a connection that is lost."""
        for held in tuple(self._held):
            if held.connection is connection:
                self._end(held)

    def _try(self, held: _Held, last: bool) -> None:
        # Two may have called for a look while one was enough.
        if held in self._held and held.answer(last):
            self._end(held)

    def _end(self, held: _Held) -> None:
        held.timer.cancel()
        self._held.discard(held)
