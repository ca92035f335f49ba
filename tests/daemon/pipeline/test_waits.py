"""The status of a call of a sink that waits: the service that it waits for, its time, and when it counts as hung."""

import threading
from contextlib import nullcontext
from typing import Any

import pytest

from fastwire.columns.chunk import Chunk
from fastwire_daemon.runtime.outside import waits_for
from fastwire_daemon.sinks import thread
from tests.support.pipeline_bed import Bed, NotingSink


class Held(NotingSink):
    """A sink whose next ``write`` lasts until ``go_on``, on its own thread or on one that it waits for."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(notes)
        self.go_on, self.began = threading.Event(), threading.Event()
        self.go_on.set()  # the marker of the first position
        self.what = ""
        self.threads: list[int | None] = []
        self.elsewhere = False

    def write(self, chunk: Chunk) -> None:
        if self.elsewhere:
            worker = threading.Thread(target=self._hold)
            worker.start()
            worker.join()
        else:
            self._hold()
        super().write(chunk)

    def _hold(self) -> None:
        self.threads.append(threading.get_ident())
        with waits_for(self.what, 600) if self.what else nullcontext():
            if not self.go_on.is_set():
                self.began.set()
            self.go_on.wait(60)


async def held(**attributes: Any) -> Bed:
    """A pipeline whose sink has a chunk that it does not take yet."""
    bed = Bed(Held)
    await bed.running()
    await bed.until(lambda: bed.waiting)
    for name, value in attributes.items():
        setattr(bed.sink, name, value)
    bed.sink.go_on.clear()
    bed.pipeline.on_chunk(bed.chunks.next())
    await bed.until(bed.sink.began.is_set)
    return bed


async def ended(bed: Bed) -> None:
    bed.sink.go_on.set()
    await bed.until(lambda: bed.waiting)
    assert bed.pipeline.status()["waiting"] is None
    assert bed.pipeline.hung_s(float("inf")) == 0.0
    await bed.end()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_service_that_a_call_waits_for(elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = await held(what="the schema registry at http://r", elsewhere=elsewhere)
    monkeypatch.setattr(thread, "TOLD_AFTER_S", 600.0)
    assert bed.pipeline.status()["waiting"] is None
    assert bed.pipeline.hung_s(float("inf")) == 0.0
    monkeypatch.setattr(thread, "TOLD_AFTER_S", 0.0)
    assert bed.pipeline.status()["waiting"] == "waits for the schema registry at http://r, for 0 of at most 600 s"
    await ended(bed)


async def test_a_call_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = await held()
    assert bed.pipeline.status()["waiting"] is None
    assert bed.pipeline.hung_s(float("inf")) == float("inf")
    monkeypatch.setattr(thread, "SLOW_S", 0.0)
    assert bed.pipeline.status()["waiting"] == "a call of the sink has taken 0 s"
    assert bed.pipeline.hung_s(float("inf")) == float("inf")  # that is no reason
    await ended(bed)
