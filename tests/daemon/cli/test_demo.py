"""``demo``: what it replaces, and what it leaves alone."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from fastwire.systems import SYSTEMS
from tests.daemon.cli.program import Run


def test_a_demo_replaces_the_one_before_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "data"
    for records in (200, 100):
        code, _, err = run("demo", "--system", "kafka", "--records", records, "--path", path)
        assert code == 0, err
        assert ds.dataset(path, format="parquet").count_rows() == records


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_demo_of_each_system(run: Run, tmp_path: Path, system: str) -> None:
    code, out, err = run("demo", "--system", system, "--records", 5000, "--path", tmp_path / "data")
    assert code == 0, err
    assert "Five rows" in out


def test_a_place_without_a_folder_is_said_before_a_broker_starts(run: Run, tmp_path: Path) -> None:
    code, out, err = run("demo", "--path", tmp_path / "no" / "data", "--records", 10)
    assert (code, out) == (1, "")
    assert "is not a folder: use another --path" in " ".join(err.split())


@pytest.mark.parametrize("there", ["data/_fastwire/dataset.json", "data/notes.txt", "data", "data.toml"])
def test_what_is_not_of_a_demo_is_left_alone(run: Run, tmp_path: Path, there: str) -> None:
    file = tmp_path / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("[pipelines.orders]")
    code, _, err = run("demo", "--path", tmp_path / "data", "--records", 100)
    what = "configuration" if there == "data.toml" else "dataset"
    assert (code, f"is not the {what} of an earlier demo: use another --path" in " ".join(err.split())) == (1, True), (
        err
    )
    assert file.read_text() == "[pipelines.orders]"
    assert sorted(each.name for each in tmp_path.iterdir()) == [there.partition("/")[0]]
