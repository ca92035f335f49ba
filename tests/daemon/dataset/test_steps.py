"""The steps of a commit: their order, their names, and that each row lands once wherever a writer stops."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fastwire_daemon.dataset.steps import STEPS
from fastwire_daemon.dataset.storage.disk import Disk
from tests.support import rolls


class Recording(Disk):
    """A disk that records the operations of a commit, in order and by short names."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}/"
        self._paths: dict[int, str] = {}
        self.done: list[str] = []

    def _say(self, what: str, path: str) -> None:
        writer = path.partition("/staging/")[2].partition("/")[0]
        name = f"{path}/".removeprefix(self._root).replace("_fastwire/", "").replace(writer or "\0", "W")
        self.done.append(f"{what} {name.strip('/') or '.'}")

    def create(self, path: str) -> int:
        file = super().create(path)
        self._paths[file] = path
        return file

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        for path in (*(self._paths[file] for file in files), *folders):
            self._say("sync", path)
        super().sync(files, folders)

    def link(self, source: str, target: str) -> None:
        self._say("link", target)
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self._say("rename", target)
        super().rename(source, target)

    def touch(self, path: str) -> bool:
        self._say("touch", path)
        return super().touch(path)

    def make_folder(self, path: str) -> bool:
        self._say("folder", path)
        return super().make_folder(path)


def test_the_order_of_a_commit(tmp_path: Path) -> None:
    disk = Recording(tmp_path)
    writer = rolls.writer(tmp_path, disk, partition_by="day")
    writer.open()
    writer.commit([], [rolls.begun()])
    for number, day in ((0, "dt=2026-01-01/"), (1, "dt=2026-01-02/")):
        disk.done.clear()
        files = [rolls.stage(writer, [number], day)]
        disk.done.append("commit")
        writer.commit(files, [rolls.span(number - 1, number)])
    assert disk.done == [
        "commit",
        "folder dt=2026-01-02",
        "sync .",
        "sync staging/W/3-0.part",
        "sync staging/W/3-entry.part",
        "sync dt=2026-01-01",
        "sync staging/W",
        "link log/000000000/000000000003.json",
        "sync log/000000000",
        "touch staging/W/3-0.part",
        "rename dt=2026-01-02/000000000003-0.jsonl",
        "rename newest/000000000003.json",
    ]
    writer.close()


def test_all_steps_are_named(tmp_path: Path) -> None:
    """One story that comes past every step; nothing is reached that the list does not have."""
    seen: list[str] = []
    story(tmp_path, seen.append)
    assert {step.partition(":")[0] for step in seen} == {step.partition(":")[0] for step in STEPS}
    assert len(STEPS) == len(set(STEPS))


def story(path: Path, reached: Callable[[str], None]) -> None:
    """A writer that dies in its open roll, and one that takes over, for as many entries as a checkpoint needs."""
    first = rolls.writer(path, reached=reached)
    first.checkpoint_every = 3
    first.open()
    try:
        if rolls.end_of(first.coverage) < 0:
            rolls.land(first, -1, 0)
        rolls.stage(first, [99])
    finally:
        if first._staging is not None:
            first._staging.release()
    second = rolls.writer(path, reached=reached)
    second.checkpoint_every = 3
    try:
        second.open()
        while (end := rolls.end_of(second.coverage)) < 4:
            rolls.land(second, end, end + 1)
    finally:
        second.close()  # stopped: lets go of its lock and touches nothing


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_stopped_at_any_step_each_row_lands_once(tmp_path: Path, step: str, times: int) -> None:
    try:
        story(tmp_path, rolls.stop_at(step, times))
    except rolls.Stopped:
        pass
    for _ in range(2):
        story(tmp_path, lambda step: None)
    assert rolls.rows(tmp_path) == [0, 1, 2, 3, 4]
    assert list((tmp_path / "_fastwire/staging").iterdir()) == []
