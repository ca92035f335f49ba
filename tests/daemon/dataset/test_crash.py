"""Writers as processes of their own: killed at every step, stopped and woken, and two that take the same rows.

The source is a file of numbers; a row is acked by nothing but Coverage, so whatever did not land is written again.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.steps import STEPS
from tests.support import rolls

ROWS = 30
ROOT = Path(__file__).parents[3]

# A process that lands rows 0 to ROWS - 1 in rolls of two. At each step it looks whether that is where it must die or
# stop, and says so; it starts over as a pipeline does.
CHILD = """
import os, signal, sys
from pathlib import Path
from tests.support import rolls
from fastwire_daemon.runtime.errors import SinkFailedError, Superseded

path, rows, wanted, times, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]

def reached(step):
    global times
    if step == wanted:
        times -= 1
        if times == 0:
            os.kill(os.getpid(), getattr(signal, name))

writer = rolls.writer(path, reached=reached)
writer.checkpoint_every = 3
while True:
    try:
        end = rolls.end_of(writer.open())
        while end < rows - 1:
            roll = range(end + 1, min(end + 3, rows))
            files = [rolls.stage(writer, [number]) for number in roll]
            end = rolls.end_of(writer.commit(files, [rolls.span(end, roll[-1])]))
        break
    except (Superseded, SinkFailedError):
        continue
writer.close()
"""


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    children: list[subprocess.Popen[bytes]] = []

    def start(
        path: Path = tmp_path, rows: int = ROWS, wanted: str = "", times: int = 1, name: str = "SIGKILL"
    ) -> "subprocess.Popen[bytes]":
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(rows), wanted, str(times), name],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": "."},
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()


def assert_whole(path: Path, rows: int = ROWS) -> None:
    assert rolls.rows(path) == list(range(rows))
    report = verify(path)
    assert report.ok, report.problems
    assert report.counted_rows == rows
    assert list((path / "_fastwire/staging").iterdir()) == []


@pytest.mark.crash
def test_killed_at_every_step(tmp_path: Path, spawn: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    """One dataset, one death at each step, with whatever the ones before have left."""
    rows = 2
    died = []
    for times in (1, 2):
        for step in STEPS:
            # The dead of the round before give each round something to fence and to publish.
            rows += 6
            child = spawn(rows=rows, wanted=step, times=times)
            if child.wait() == -signal.SIGKILL:
                died.append(step)
            assert rolls.rows(tmp_path) == list(range(len(rolls.rows(tmp_path)))), step
    assert set(died) == set(STEPS), "every step was a place to die"
    assert spawn(rows=rows).wait() == 0
    assert_whole(tmp_path, rows)


@pytest.mark.crash
@pytest.mark.parametrize("step", ["staging-made", "dataset-created", "log-read", "files-finished", "entry-linked"])
def test_killed_before_there_is_a_dataset(
    tmp_path: Path, spawn: Callable[..., "subprocess.Popen[bytes]"], step: str
) -> None:
    assert spawn(rows=4, wanted=step).wait() == -signal.SIGKILL
    assert rolls.rows(tmp_path) == []
    assert spawn(rows=4).wait() == 0
    assert_whole(tmp_path, 4)


@pytest.mark.crash
@pytest.mark.parametrize("step", ["files-synced", "entry-linked", "log-synced", "published:0"])
def test_stopped_while_another_takes_over_and_woken(
    tmp_path: Path, spawn: Callable[..., "subprocess.Popen[bytes]"], step: str
) -> None:
    sleeper = spawn(wanted=step, times=3, name="SIGSTOP")
    pid, status = os.waitpid(sleeper.pid, os.WUNTRACED)
    assert pid == sleeper.pid and os.WIFSTOPPED(status)
    seen = rolls.rows(tmp_path)
    other = spawn()
    assert other.wait() == 0
    assert rolls.rows(tmp_path)[: len(seen)] == seen
    os.kill(sleeper.pid, signal.SIGCONT)
    assert sleeper.wait() == 0
    assert_whole(tmp_path)


@pytest.mark.crash
def test_two_processes_take_the_same_rows(tmp_path: Path, spawn: Callable[..., "subprocess.Popen[bytes]"]) -> None:
    """A reader lists the folder all the while and sees rows in order, none twice and none torn."""
    children = [spawn(rows=200), spawn(rows=200)]
    while any(child.poll() is None for child in children):
        try:
            seen = rolls.rows(tmp_path)
        except FileNotFoundError:
            continue  # a staging folder went while the test was listing
        assert seen == list(range(len(seen)))
        time.sleep(0.002)
    assert [child.wait() for child in children] == [0, 0]
    assert_whole(tmp_path, 200)
