"""Bounded runs with real brokers: what a time means to them, within batches, and a cursor that stays in front of it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from fastwire_daemon.dataset.proof.verify import verify
from tests.crash.scene import Scene

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("system", "kind"), [("pulsar", "failover"), ("pulsar", "exclusive"), ("kafka", "none"), ("kafka", "classic")]
)
def test_runs_between_times_share_all_records(
    request: pytest.FixtureRequest, fresh_name: Callable[[str], str], tmp_path: Path, system: str, kind: str
) -> None:
    """The records from one moment to the next, in datasets of their own, are all records, each once."""
    broker = request.getfixturevalue(f"plain_{system}")
    scene = Scene.on(broker, fresh_name("bounded"), tmp_path, partitions=2, kind=kind)
    texts = []
    for _ in range(2):
        scene.feed.add(7)
        texts.append(_next_millisecond())
    scene.feed.add(7)
    bounds = [("earliest", texts[0]), (texts[0], texts[1]), (texts[1], "now")]
    wanted = scene.feed.count // 3
    found: list[Any] = []
    for number, (start, end) in enumerate(bounds):
        path = tmp_path / f"part-{number}"
        times = "--from", start, "--until", end, "--into", str(path)
        for _ in range(2):  # the second run has nothing left
            with scene.run("-p", "p", *times, until_end=False) as daemon:
                daemon.wait_done()
        rows = pyarrow.dataset.dataset(path, format="parquet", exclude_invalid_files=True).to_table(columns=["value"])
        assert rows.num_rows == wanted, (number, rows.num_rows)
        found += rows["value"].to_pylist()
        report = verify(path, deep=True)
        assert report.ok, report.problems
    assert len(set(found)) == len(found) == scene.feed.count


def _next_millisecond() -> str:
    """Wait for the next whole millisecond, in which records have their times; return it."""
    milli = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < milli:
        time.sleep(0.0001)
    return datetime.fromtimestamp(milli / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
