"""Conformance tests of the back-pressure of a source: a slow sink bounds what is in flight."""

from ...runtime.budget import Level
from .scene import OPEN, MemorySink, Scene
from .suite import SystemSuite, on_uvloop

MEMORY = 32 << 20  # bytes
RECORD = 64 << 10  # bytes; 16 of them are a batch
BATCHES = 64  # twice the memory
IN_FLIGHT = 12 << 20  # bytes: two chunks of 4 MiB in the queue, and one in the sink
EXCESS = 16 << 20  # bytes that two connections may still deliver to a pipeline without room


class SystemMemory(SystemSuite):
    """The memory budget, and a pipeline that has no room."""

    @on_uvloop
    async def test_a_sink_that_waits_stops_the_reading(self, scene: Scene) -> None:
        """While ``write`` waits only a few chunks are in flight, and the connections stay."""
        _fill(scene)
        sink = MemorySink()
        sink.gate.clear()
        async with scene.running(sink) as run:
            await run.until(lambda: run.pipeline.queued, "a chunk that waits for the sink")
            await self._read_everything(scene)
            accepted = scene.broker.accepted
            received = run.pipeline.figures.bytes_received
            assert received <= IN_FLIGHT + EXCESS, f"{received} bytes were received without room"
            sink.gate.set()
            await run.until(lambda: len(sink.rows) == len(scene.produced), "all records")
            assert scene.broker.accepted == accepted, "a connection was lost"
        self._check(scene, sink)

    @on_uvloop
    async def test_memory_stays_below_the_budget(self, scene: Scene) -> None:
        """While a sink keeps the memory of its chunks, reading stops at the budget; it goes on with the commits."""
        _fill(scene)
        sink = MemorySink()
        sink.hoard = True
        async with scene.running(sink, policy=OPEN, memory=MEMORY) as run:
            await run.until(lambda: run.budget.level is not Level.FREE, "a full budget")
            await self._read_everything(scene)
            accepted = scene.broker.accepted
            assert run.pool.peak <= MEMORY + IN_FLIGHT, f"{run.pool.peak} bytes were used of {MEMORY}"

            def go_on() -> bool:
                if run.budget.level is not Level.FREE:
                    run.pipeline.commit_soon("test")
                return len(sink.rows) + sink.staged == len(scene.produced)

            await run.until(go_on, "all records")
            assert scene.broker.accepted == accepted, "a connection was lost"
        self._check(scene, sink)

    async def _read_everything(self, scene: Scene) -> None:
        """Land everything by another pipeline: a source that does not stop receives as much meanwhile."""
        sink = MemorySink()
        await scene.land(sink, group="meanwhile")
        self._check(scene, sink)


def _fill(scene: Scene) -> None:
    for number in range(BATCHES):
        scene.produce(16, number % 2, size=RECORD)
