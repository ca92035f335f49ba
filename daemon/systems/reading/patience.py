"""A time limit for logs that cannot be read, for runs that wait for the end of all logs."""

import asyncio

from ..source import Source

LOG_LIMIT_S = 30.0  # a log without a leader is stopped after this time
LOOK_S = 0.25  # between two looks


class Patience:
    """Stops each log that could not be read for ``LOG_LIMIT_S`` without a break. Call ``look`` every ``LOOK_S``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._since: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()

    def look(self) -> None:
        """Stop the logs that have waited for too long."""
        now = self._loop.time()
        waiting = self._source.waiting()
        self._since = {index: self._since.get(index, now) for index in waiting}
        for index, since in self._since.items():
            if now - since >= LOG_LIMIT_S:
                self._source.stop(index, f"could not be read for {LOG_LIMIT_S:.0f} s: {waiting[index]}")
