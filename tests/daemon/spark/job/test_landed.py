"""The dataset that a job reads: what Spark would follow out of it is refused."""

from pathlib import Path

import pytest

from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetError, DatasetMismatchError
from fastwire_daemon.spark.job.landed import landed_columns
from tests.support import rolls

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")


def test_links_to_folders_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    writer = DatasetWriter(path, DatasetOptions(system="kafka", cluster="c:1", columns=COLUMNS, split="topic"))
    writer.open()
    writer.commit([rolls.stage(writer, [0], "t=a/")], [rolls.span(-1, 0)])
    writer.close()
    assert landed_columns(path) == list(COLUMNS)
    (path / "_fastwire" / "link").symlink_to(path)  # Spark skips it
    assert landed_columns(path) == list(COLUMNS)
    (path / "t=a" / "loop").symlink_to(path)
    with pytest.raises(DatasetError, match="t=a/loop is a symbolic link to a folder"):
        landed_columns(path)


def test_a_folder_of_datasets_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no dataset at .*: has the daemon landed anything yet"):
        landed_columns(tmp_path)
    for name in ("a", "b"):
        writer = DatasetWriter(tmp_path / name, DatasetOptions(system="kafka", cluster="c:1", columns=COLUMNS))
        writer.open()
        writer.commit([rolls.stage(writer, [0])], [rolls.span(-1, 0)])
        writer.close()
    with pytest.raises(
        DatasetMismatchError,
        match=r'holds 2 datasets, .* give it source = \{ dataset = ".*/a" \}.*spark\.read\.parquet\(".*/\*"\)',
    ):
        landed_columns(tmp_path)
    assert landed_columns(tmp_path / "b") == list(COLUMNS)
