"""Tables in an object store, by the protocol of S3: what differs from a folder is how files get their names."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import polars
import pytest

from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.dataset.writer import DatasetWriter
from tests.support import rolls, tables
from tests.support.s3_server import Settings, new_bucket, s3_server


@pytest.fixture(scope="module")
def store() -> Iterator[Settings]:
    with s3_server() as settings:
        yield settings


@pytest.fixture
def bucket(store: Settings, tmp_path: Path) -> Bucket:
    """An empty bucket of its own."""
    return new_bucket(store, tmp_path.name)


def opened(bucket: Bucket, reached: Callable[[str], None] = lambda step: None) -> DatasetWriter:
    writer = tables.writer("", reached, bucket)  # type: ignore[arg-type]
    writer.open()
    return writer


def pieces(bucket: Bucket, version: int) -> list[bytes]:
    """The actions of a version of the table, as JSON."""
    data = bucket.get(f"_delta_log/{version:020d}.json")
    assert data is not None
    return data.splitlines()


def assert_landed(bucket: Bucket, wanted: range) -> None:
    """The table has each number once, by the format's own library and by Polars' reader."""
    options = dict(bucket.access)
    assert tables.numbers(bucket.url, **options) == list(wanted)
    frame = polars.scan_delta(bucket.url, storage_options=options).select("offset").collect()
    assert Counter(frame["offset"].to_list()) == Counter(wanted)


def test_the_files_of_commits_are_in_the_table(bucket: Bucket) -> None:
    writer = opened(bucket)
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    writer.close()
    assert_landed(bucket, range(10))
    report = verify("", medium=bucket, deep=True)
    assert report.problems == [] and "the table has all 10 rows of log entries 1 to 2, once" in report.proven


@pytest.mark.parametrize("step", ["entry-linked", "published:0", "table-created", "table-ready", "table-committed"])
def test_what_a_stopped_writer_has_left_is_published_once(bucket: Bucket, step: str) -> None:
    writer = opened(bucket, rolls.stop_at(step))
    with pytest.raises(rolls.Stopped):
        tables.land(writer, -1, 9)
    other = opened(bucket)
    assert rolls.end_of(other.coverage) == 9
    assert_landed(bucket, range(10))
    tables.land(other, 9, 20)
    for each in (other, writer):
        each.close()
    assert_landed(bucket, range(21))


def test_writers_that_publish_the_same_entry_add_its_files_once(bucket: Bucket) -> None:
    writer = opened(bucket)
    tables.land(writer, -1, 4)
    others = [opened(bucket) for _ in range(3)]
    slow = threading.Barrier(4)
    failed: list[BaseException] = []

    def refresh(other: DatasetWriter) -> None:
        try:
            slow.wait()
            other.refresh()
        except BaseException as exc:
            failed.append(exc)

    # It dies before it publishes.
    writer._publication.complete = lambda: None  # type: ignore[method-assign]
    tables.land(writer, 4, 9)
    threads = [threading.Thread(target=refresh, args=[other]) for other in others]
    for thread in threads:
        thread.start()
    slow.wait()
    for thread in threads:
        thread.join()
    assert failed == []
    assert_landed(bucket, range(10))
    for each in (*others, writer):
        each.close()


def test_what_the_table_does_not_take_stays_staged(bucket: Bucket) -> None:
    writer = opened(bucket)
    tables.land(writer, -1, 4)
    changed = next(action for action in map(json.loads, pieces(bucket, 0)) if "metaData" in action)
    changed["metaData"]["configuration"]["delta.setTransactionRetentionDuration"] = "interval 1 days"
    bucket.create("_delta_log/00000000000000000002.json", json.dumps(changed).encode())
    for at in range(1, 3):
        tables.land(writer, at * 5 - 1, at * 5 + 4)
    assert "setTransactionRetentionDuration" in writer.stopped
    writer.close()
    staged = [name for name in bucket.walk("_fastwire/staging") if name.endswith(".part")]
    assert len(staged) == 2 and len(list(bucket.walk(""))) > 2
    assert bucket.head("000000000002-0.parquet") is None
    bucket.delete(["_delta_log/00000000000000000002.json"])
    writer = opened(bucket)
    assert writer.stopped == ""
    assert_landed(bucket, range(15))
    writer.close()
    assert list(bucket.walk("_fastwire/staging")) == []
