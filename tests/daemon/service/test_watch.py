"""A configuration file that something else replaces."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastwire_daemon.service.watch import call_on_change

EVERY_S = 0.01


class Looks:
    """Counts calls, and waits for the next one."""

    def __init__(self) -> None:
        self.calls = 0
        self.called = asyncio.Event()

    def call(self) -> None:
        self.calls += 1
        self.called.set()

    async def wait(self) -> None:
        async with asyncio.timeout(60):
            await self.called.wait()
        self.called.clear()


@asynccontextmanager
async def watching(path: Path, text: str) -> AsyncIterator[Looks]:
    looks = Looks()
    task = asyncio.create_task(call_on_change(path, text, looks.call, every_s=EVERY_S))
    try:
        yield looks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_change_is_one_call(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("one")
    async with watching(path, "one") as looks:
        for text in ("two", "three", "two"):
            # In one step: a look between the emptying of a file and its new text would be a call more.
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").rename(path)
            await looks.wait()
    assert looks.calls == 3


async def test_a_change_before_the_first_look_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("newer than what was read")
    async with watching(path, "what was read") as looks:
        await looks.wait()


async def test_a_mounted_map_is_replaced_by_a_link(tmp_path: Path) -> None:
    """As kubelet does: f.toml -> ..data/f.toml, ..data -> ..VERSION. An equal copy is no change, a gap neither."""
    for version, text in (("..1", "one"), ("..2", "one"), ("..3", "three")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "f.toml").write_text(text)
    data, path = tmp_path / "..data", tmp_path / "f.toml"
    data.symlink_to("..1")
    path.symlink_to("..data/f.toml")

    def switch(version: str) -> None:
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").rename(data)

    async with watching(path, "one") as looks:
        switch("..2")
        data.rename(tmp_path / "away")
        await asyncio.sleep(5 * EVERY_S)
        (tmp_path / "away").rename(data)
        switch("..3")
        await looks.wait()
    assert looks.calls == 1


async def test_bytes_that_are_no_text_are_a_change(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(b"\xff\xfe")
    async with watching(path, "one") as looks:
        await looks.wait()
