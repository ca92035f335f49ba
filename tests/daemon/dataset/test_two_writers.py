"""Two writers of one dataset: who lands first, who is superseded, and who is fenced and cleared away."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fastwire.position import Position, Span
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetMismatchError, FencedError, SinkFailedError, Superseded
from tests.support import rolls
from tests.support.store import LocalBucket


def pair(path: Path, disks: Sequence[Disk | None] = (None, None)) -> tuple[DatasetWriter, DatasetWriter]:
    first = rolls.writer(path, disks[0])
    first.open()
    first.commit([], [rolls.begun(0), rolls.begun(1)])
    second = rolls.writer(path, disks[1])
    second.open()
    return first, second


def test_disjoint_commits_follow_each_other(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    a, b = rolls.stage(first, [0]), rolls.stage(second, [10])
    second.commit([b], [rolls.span(-1, 0, 1)])
    coverage = first.commit([a], [rolls.span(-1, 0, 0)])
    assert rolls.visible(tmp_path) == {"000000000002-0.jsonl": [10], "000000000003-0.jsonl": [0]}
    assert rolls.end_of(coverage, 0) == rolls.end_of(coverage, 1) == 0
    assert second.refresh() == coverage
    first.close()
    second.close()


def test_the_second_to_land_the_same_is_superseded(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    a, b = rolls.stage(first, [0, 1]), rolls.stage(second, [0])
    second.commit([b], [rolls.span(-1, 0)])
    with pytest.raises(Superseded, match=r"another writer was first: .* overlaps"):
        first.commit([a], [rolls.span(-1, 1)])
    assert [name for name in rolls.staging(tmp_path) if not name.endswith("/lock")] == []
    assert rolls.end_of(first.coverage) == 0, "what has landed may be acked"
    assert rolls.rows(tmp_path) == [0]
    with pytest.raises(ValueError, match="another roll"):
        first.commit([a], [rolls.span(0, 1)])
    assert rolls.end_of(first.open()) == 0
    rolls.land(first, 0, 1)
    assert rolls.rows(tmp_path) == [0, 1]
    first.close()
    second.close()


def test_two_that_begin_a_log_at_different_places(tmp_path: Path) -> None:
    first, second = pair(tmp_path)
    latest = [Position(7, 40), Position(7, 50)]
    second.commit([], [Span(rolls.log(5), latest[0], latest[0], 0)])
    with pytest.raises(Superseded, match="a reader starts it at 7:50, but its known start is 7:40"):
        first.commit([], [Span(rolls.log(5), latest[1], latest[1], 0)])
    assert first.coverage.start(rolls.log(5)) == latest[0]
    first.close()
    second.close()


def test_a_dataset_that_somebody_else_created_meanwhile(tmp_path: Path) -> None:
    first, second = rolls.writer(tmp_path, cluster="other:1"), rolls.writer(tmp_path)
    first.open()
    second.open()
    rolls.land(second, -1, 0)
    with pytest.raises(Superseded, match="another writer has created the dataset"):
        first.stage()
    assert rolls.end_of(first.open()) == 0 and first.cluster == "broker:6650"
    first.close()
    third = rolls.writer(tmp_path, columns=("key",))
    third._broken = False  # as if it had looked before there was anything
    with pytest.raises(DatasetMismatchError):
        third.stage()
    second.close()


def test_a_refresh_sees_a_dataset_that_came_later(tmp_path: Path) -> None:
    first, second = rolls.writer(tmp_path), rolls.writer(tmp_path)
    first.open()
    second.open()
    rolls.land(second, -1, 0)
    assert rolls.end_of(first.refresh()) == 0 and first.exists
    rolls.land(first, 0, 1)
    first.close()
    second.close()


@pytest.mark.parametrize("step", ["entry-linked", "log-synced", "published:0"])
def test_a_commit_that_was_not_finished_is_published_by_the_next_reader(tmp_path: Path, step: str) -> None:
    first = rolls.writer(tmp_path, reached=rolls.stop_at(step, 2 if step != "published:0" else 1))
    first.open()
    first.commit([], [rolls.begun(0), rolls.begun(1)])
    second = rolls.writer(tmp_path)
    second.open()
    a = [rolls.stage(first, [0]), rolls.stage(first, [1])]
    b = rolls.stage(second, [10])
    with pytest.raises(rolls.Stopped):
        first.commit(a, [rolls.span(-1, 1)])
    second.commit([b], [rolls.span(-1, 0, 1)])
    assert rolls.visible(tmp_path) == {
        "000000000002-0.jsonl": [0],
        "000000000002-1.jsonl": [1],
        "000000000003-0.jsonl": [10],
    }
    with pytest.raises(SinkFailedError, match="is not open"):
        first.refresh()
    assert rolls.end_of(first.open()) == 1
    first.close()
    second.close()


def test_the_dead_are_fenced_and_cleared_away(tmp_path: Path) -> None:
    dead = rolls.writer(tmp_path)
    dead.open()
    rolls.land(dead, -1, 0)
    rolls.stage(dead, [1, 2, 3])
    name = rolls.entry(tmp_path, 1).writer
    alive = rolls.writer(tmp_path)
    alive.open()
    assert rolls.entries(tmp_path) == 1, "whoever holds a lock is not fenced"
    dead._staging.release()  # type: ignore[union-attr]  # what the end of a process does
    steps: list[str] = []
    other = rolls.writer(tmp_path, reached=steps.append)
    other.open()
    assert rolls.entry(tmp_path, 2).fence == (name,)
    assert not any(each.startswith(name) for each in rolls.staging(tmp_path))
    assert [step for step in steps if step.startswith(("fence", "staging"))] == [
        "staging-made",
        "fence-linked",
        "fence-synced",
        "staging-cleared",
    ]
    # Should it live after all, it cannot commit, and finds out why when it reads on.
    with pytest.raises(FencedError, match=r"has fenced this writer of .* \(log entry"):
        dead.refresh()
    assert rolls.end_of(dead.open()) == 0
    rolls.land(dead, 0, 1)
    for writer in (dead, alive, other):
        writer.close()
    assert rolls.rows(tmp_path) == [0, 1]
    assert list((tmp_path / "_fastwire/staging").iterdir()) == []


def test_a_fence_is_found_behind_which_there_is_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer pauses between its lock and the log for so long that it is taken for dead; others go on meanwhile."""
    monkeypatch.setattr(DatasetWriter, "checkpoint_every", 2)
    store = LocalBucket(tmp_path)
    first = rolls.writer(tmp_path, store)
    first.open()
    rolls.land(first, -1, 0)
    first.close()

    def reached(step: str) -> None:
        if step == "staging-made":
            (lock,) = (tmp_path / "_fastwire/staging").glob("*/lock")
            os.utime(lock, (0, 0))  # as old as if its owner were dead
            other = rolls.writer(tmp_path, store)
            other.open()
            rolls.land(other, 0, 1)
            rolls.land(other, 1, 2)
            other.close()
            assert list((tmp_path / "_fastwire/checkpoint").iterdir())

    slow = rolls.writer(tmp_path, store, reached=reached)
    with pytest.raises(FencedError, match=r"has fenced this writer of .* \(log entry 2\)"):
        slow.open()
    slow.close()


def test_what_is_not_a_writer_in_staging_is_left_alone(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    (tmp_path / "_fastwire/staging/lost+found").mkdir()
    writer.open()
    assert rolls.entries(tmp_path) == 1
    assert (tmp_path / "_fastwire/staging/lost+found").exists()
    writer.close()
