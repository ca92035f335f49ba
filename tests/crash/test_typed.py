"""Typed pipelines that are killed at every step of a commit, each run with a schema of its own."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fastwire_daemon.dataset.steps import STEPS
from tests.crash.scene import Scene
from tests.crash.system import seldom
from tests.crash.test_kill import kill_at
from tests.real.daemon import verify
from tests.support.sequence_audit import visible_files

pytestmark = pytest.mark.crash


def schema(folder: Path, number: int) -> Path:
    """Write a schema of 100 bytes and a column of nulls, which takes no bytes and which no other schema has."""
    fields = [
        {"name": "value", "type": {"type": "fixed", "name": "Value", "size": 100}},
        {"name": f"c{number}", "type": "null"},
    ]
    file = folder / f"{number}.avsc"
    file.write_text(json.dumps({"type": "record", "name": "T", "fields": fields}))
    return file


def decode(folder: Path, number: int) -> dict[str, object]:
    return {"format": "avro", "schema": str(schema(folder, number)), "columns": ["*", "_offset"]}


@pytest.mark.parametrize("kind", ["failover", *seldom("static", "tubemq")])
def test_columns_and_dead_letters_survive_a_kill_at_every_step(
    dev_scene: Callable[..., Scene], kind: str, tmp_path: Path
) -> None:
    scene = dev_scene(kind=kind)
    killed = {}
    for number, step in enumerate(STEPS):
        killed[step] = kill_at(scene, [(step, 1)], decode=decode(tmp_path, number))[step]
    scene.feed.size = 99  # values that do not match
    scene.feed.add(1)
    bad = 2 * 50
    scene.feed.size = 100
    scene.feed.add(1)
    scene.job.decode.update(decode(tmp_path, len(STEPS)))
    scene.settle()
    assert [step for step in STEPS if not killed[step]] == []
    said = verify(scene.path)
    assert said.returncode == 0 and f"{bad} dead letters" in said.stdout, said.stdout + said.stderr
    landed = [number for file in visible_files(scene.path) for number in numbers(file)]
    everything = set(range(scene.feed.count))
    assert len(landed) == len(set(landed)) == len(everything) - bad
    *_, last = (
        types
        for file in sorted(scene.path.glob("_fastwire/log/*/*.json"))
        if (types := json.loads(file.read_bytes()).get("types"))
    )
    names = [name for name, *_ in last]
    committed = [f"c{STEPS.index(step)}" for step in ("entry-linked", "log-synced", "published:0", "committed")]
    assert {"value", *committed} <= {*names} and names[-1] == f"c{len(STEPS)}"
    assert {*pq.read_schema(visible_files(scene.path)[-1]).names} == {*names, "_offset"}


def numbers(file: Path) -> list[int]:
    return [int(value[:9]) for value in pq.read_table(file, columns=["value"], partitioning=None)["value"].to_pylist()]
