"""Threads that run the blocking calls of sinks: one of each sink, or a few for many sinks."""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

STUCK_S = 1.0  # a call that takes longer than this does not count among those that share the workers
MOST_STUCK = 64  # calls that take so long, each with a thread of its own

Call = Callable[[], None]


class Calls(Protocol):
    """Runs the calls of one sink in their order, one at a time. Calls raise nothing."""

    def put(self, call: Call) -> None:
        """Run ``call`` after all earlier ones."""

    def end(self) -> None:
        """End after the calls already made; no call may follow."""


class OwnThread:
    """Runs the calls of one sink on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self.put = self._calls.put
        threading.Thread(target=self._work, args=(self._calls,), name=name, daemon=True).start()

    def end(self) -> None:
        """See :meth:`Calls.end`."""
        self._calls.put(None)

    @staticmethod
    def _work(calls: "SimpleQueue[Call | None]") -> None:
        while (call := calls.get()) is not None:
            call()
            del call


class Workers:
    """At most ``most`` threads for the calls of many sinks, which are started as they are needed.

    A call that takes more than a second leaves its place to others: there is a thread more for each such call, up to
    64. So sinks that wait for a service do not hold up those that work.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._guard = threading.Condition()
        self._ready: deque[_SharedCalls] = deque()  # each has a call to run
        self._running: dict[int, float] = {}  # the thread, and the time at which its call began
        self._threads = 0
        self._ended = False

    def calls(self) -> Calls:
        """Return what runs the calls of one sink."""
        return _SharedCalls(self)

    @property
    def threads(self) -> int:
        """The number of threads that are there now."""
        return self._threads

    def look(self) -> None:
        """Start threads beside those whose calls take long, if others wait. To be called now and then."""
        with self._guard:
            self._start()

    def end(self) -> None:
        """End the threads after their calls; calls that wait are run before."""
        with self._guard:
            self._ended = True
            self._guard.notify_all()

    def _offer(self, calls: "_SharedCalls") -> None:
        with self._guard:
            self._ready.append(calls)
            self._start()
            self._guard.notify()

    def _start(self) -> None:
        idle = self._threads - len(self._running)
        while len(self._ready) > idle and self._threads < self._most + self._stuck():
            self._threads += 1
            idle += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()

    def _stuck(self) -> int:
        now = monotonic()
        return min(MOST_STUCK, sum(now - began >= STUCK_S for began in self._running.values()))

    def _work(self) -> None:
        me = threading.get_ident()
        while True:
            with self._guard:
                self._running.pop(me, None)
                while not self._ready:
                    if self._ended or self._threads > self._most + self._stuck():
                        self._threads -= 1
                        return
                    self._guard.wait()
                calls = self._ready.popleft()
                self._running[me] = monotonic()
            calls.run_next()
            del calls


class _SharedCalls:
    """The calls of one sink, which one worker runs at a time."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._guard = threading.Lock()
        self._calls: deque[Call] = deque()
        self._offered = False

    def put(self, call: Call) -> None:
        """See :meth:`Calls.put`."""
        with self._guard:
            self._calls.append(call)
            if self._offered:
                return
            self._offered = True
        self._workers._offer(self)

    def end(self) -> None:
        """See :meth:`Calls.end`: there is nothing to end."""

    def run_next(self) -> None:
        """Run one call, and offer the next one."""
        with self._guard:
            call = self._calls.popleft()
        call()
        del call
        with self._guard:
            self._offered = bool(self._calls)
            if not self._offered:
                return
        self._workers._offer(self)
