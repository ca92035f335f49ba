"""The reader over a source: a failure on the way to the first record ends the iteration."""

import asyncio
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire_daemon.systems.reading.clusterreader import ClusterReader


class Unresolved:
    """A source whose partition has no first position: ``resolve`` fails."""

    partitions = ()

    def __init__(self, events: ClusterReader, error: Exception) -> None:
        self._events, self._error = events, error

    async def start(self, coverage: object) -> None:
        self._events.on_assigned([])

    async def heads(self) -> dict[int, Any]:
        return {}

    async def resolve(self, assignments: object, coverage: object) -> list[Any]:
        raise self._error

    async def close(self, seconds: float) -> None:
        pass


@pytest.mark.parametrize("error", [FastwireError("the broker refuses"), RuntimeError("a bug")])
async def test_a_failure_before_the_first_record_ends_the_iteration(error: Exception) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    reader = ClusterReader(lambda events, moved: Unresolved(events, error))  # type: ignore[arg-type,return-value]
    await reader.open()
    with pytest.raises(FastwireError, match=r"the broker refuses|a bug"):
        await asyncio.wait_for(anext(aiter(reader)), 60)
    await reader.close()
