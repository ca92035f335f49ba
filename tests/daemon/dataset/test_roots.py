"""Datasets above and below a place, in folders and in a store."""

from pathlib import Path

from fastwire_daemon.dataset.description import DESCRIPTION
from fastwire_daemon.dataset.roots import dataset_around
from fastwire_daemon.dataset.storage.bucket import open_bucket
from tests.support.s3_server import new_bucket, s3_server


def test_datasets_around_a_folder(tmp_path: Path) -> None:
    inner = tmp_path / "a/b/c"
    (inner / "_fastwire").mkdir(parents=True)
    (inner / DESCRIPTION).write_text("{}")
    (tmp_path / "a/beside").symlink_to(inner / "new")
    assert dataset_around(str(tmp_path / "a")) == str(inner)
    assert dataset_around(str(inner / "new/deep")) == str(inner)
    assert dataset_around(str(tmp_path / "a/beside")) == str(inner), "it is the real place that counts"
    assert dataset_around(str(inner)) == dataset_around(str(tmp_path / "a/b/c2")) == ""
    (tmp_path / "own/dt=2024-01-01/_fastwire").mkdir(parents=True)
    (tmp_path / "own/dt=2024-01-01" / DESCRIPTION).write_text("{}")
    assert dataset_around(str(tmp_path / "own")) == "", "folders of values are not looked at"


def test_datasets_around_a_place_in_a_store(tmp_path: Path) -> None:
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        bucket.put(DESCRIPTION, b"{}")
        root = bucket.url.removesuffix("/orders")
        for place, found in (
            (root, bucket.url),
            (f"{bucket.url}/new/deep", bucket.url),
            (bucket.url, ""),
            (f"{root}/orders2", ""),
        ):
            assert dataset_around(place, open_bucket(place, settings)) == found, place
