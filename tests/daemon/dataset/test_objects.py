"""A dataset in an object store: commits, unknown answers, uploads in parts, leases, and `verify`."""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.commitlog.entry import STAGING, entry_name
from fastwire_daemon.dataset.place import storage_at
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import PART_BYTES, Bucket, StoreAwayError, Upload
from fastwire_daemon.dataset.storage.probe import probe_bucket
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetDamagedError, FatalDiskError, FencedError, SinkFailedError, Superseded
from tests.support import rolls
from tests.support.store import LocalBucket, fail_once


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(LocalBucket, "pause", lambda self, seconds, stop: stop.is_set())
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"], "a lease is still renewed"


def opened(bucket: Bucket, **changes: object) -> DatasetWriter:
    writer = DatasetWriter("", rolls.options(), bucket, **changes)  # type: ignore[arg-type]
    writer.open()
    return writer


def landed(path: Path, entries: int = 1) -> LocalBucket:
    bucket = LocalBucket(path)
    writer = opened(bucket)
    for first in range(0, 10 * entries, 10):
        rolls.land(writer, first - 1, first + 9)
    writer.close()
    return bucket


def test_rolls_land_and_are_continued(tmp_path: Path) -> None:
    bucket = landed(tmp_path, 2)
    assert rolls.rows(tmp_path) == list(range(20)) and rolls.staging(tmp_path) == []
    writer = opened(bucket)
    assert rolls.end_of(writer.coverage) == 19
    rolls.land(writer, 19, 20)
    writer.close()
    assert rolls.entries(tmp_path) == 3 and rolls.staging(tmp_path) == []
    report = verify("", medium=bucket, deep=True)
    assert report.ok and report.path == "s3://bucket/orders" and report.counted_rows == report.rows == 21


def test_two_writers_land_each_position_once(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    first, second = opened(bucket), opened(bucket)
    rolls.land(first, -1, 9)
    with pytest.raises(Superseded):
        rolls.land(second, -1, 5)
    second.open()
    rolls.land(second, 9, 15)
    assert rolls.end_of(first.refresh()) == 15
    rolls.land(first, 15, 17)
    for writer in (first, second):
        writer.close()
    assert rolls.rows(tmp_path) == list(range(18)) and verify("", medium=bucket).ok


def test_folders_of_a_topic_keep_their_encoded_names(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    writer = DatasetWriter("", rolls.options(split="topic"), bucket)
    writer.open()
    rolls_file = rolls.stage(writer, range(3), "t=a%2Fb/")
    writer.commit([rolls_file], [rolls.span(-1, 2)])
    writer.close()
    assert bucket.names("t=a%2Fb") == ["000000000001-0.jsonl"]
    assert verify("", medium=bucket, deep=True).ok


# --- R12


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_without_an_answer_is_sent_again_until_the_entry_is_there(tmp_path: Path, moment: str) -> None:
    """``before``: the request was lost, ``after``: its answer was; the second one is refused because of the first."""
    bucket, said = LocalBucket(tmp_path), list[str | None]()
    writer = opened(bucket, on_full=said.append)
    rolls.land(writer, -1, 9)
    setattr(bucket, moment, fail_once("create", entry_name(2)))
    assert rolls.end_of(rolls.land(writer, 9, 15)) == 15
    assert rolls.entries(tmp_path) == 2 and rolls.rows(tmp_path) == list(range(16))
    assert said == [f"no answer: s3://bucket/orders/{entry_name(2)}; waiting for the store", None]
    writer.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lock_without_an_answer_is_held_by_the_one_who_asked_for_it(tmp_path: Path, moment: str) -> None:
    """A writer that took another name instead would not begin while the first answer for each name is lost."""
    bucket = LocalBucket(tmp_path)
    setattr(bucket, moment, fail_once("create", "lock"))
    storage = storage_at("", bucket)
    assert storage.hold("x/lock") == "x/lock"
    assert storage.hold("x/lock") is None, "that of another owner, whose content is not its own"
    storage.release("x/lock")
    assert bucket.get("x/lock") is None


def test_exists_is_believed_only_of_an_object_that_can_be_read(tmp_path: Path) -> None:
    """Amazon answers 409 to two requests that meet, and neither may have won."""

    class Conflict(LocalBucket):
        refused = False

        def create(self, name: str, data: bytes) -> bool:
            if name == entry_name(1) and not self.refused:
                self.refused = True
                return False
            return super().create(name, data)

    bucket = Conflict(tmp_path)
    writer = opened(bucket)
    rolls.land(writer, -1, 9)
    assert bucket.refused and rolls.rows(tmp_path) == list(range(10))
    writer.close()


def test_a_commit_that_arrives_after_the_writer_gave_up_finds_its_files(tmp_path: Path) -> None:
    bucket, stop = LocalBucket(tmp_path), threading.Event()
    late: list[Callable[[], object]] = []

    class Slow(LocalBucket):
        def create(self, name: str, data: bytes) -> bool:
            if name != entry_name(2):
                return super().create(name, data)
            late[:] = [lambda: bucket.create(name, data)]
            stop.set()
            raise StoreAwayError("no answer")

    writer = opened(Slow(tmp_path), stop=stop)
    rolls.land(writer, -1, 9)
    with pytest.raises(SinkFailedError, match=r"stopped while waiting for the store to write .*000000000002\.json"):
        rolls.land(writer, 9, 15)
    writer.close()
    assert [name.partition("/")[2] for name in rolls.staging(tmp_path)] == ["2-0.part"], "its files are kept"
    late[0]()
    second = opened(bucket)
    assert rolls.end_of(second.coverage) == 15
    second.close()
    assert rolls.rows(tmp_path) == list(range(16)) and rolls.staging(tmp_path) == []


def test_a_commit_that_arrives_after_its_repetition_was_refused_finds_its_files(tmp_path: Path) -> None:
    """Credentials that end between the two requests: the first one may yet be carried out."""
    late: list[Callable[[], object]] = []

    class Ending(LocalBucket):
        def create(self, name: str, data: bytes) -> bool:
            if name != entry_name(2):
                return super().create(name, data)
            if late:
                raise PermissionError("the store refuses it: ExpiredToken")
            late.append(lambda: bucket.create(name, data))
            raise StoreAwayError("no answer")

    bucket = LocalBucket(tmp_path)
    writer = opened(Ending(tmp_path))
    rolls.land(writer, -1, 9)
    with pytest.raises(FatalDiskError, match="ExpiredToken"):
        rolls.land(writer, 9, 15)
    writer.close()
    late[0]()
    second = opened(bucket)
    assert rolls.end_of(second.coverage) == 15
    second.close()
    assert rolls.rows(tmp_path) == list(range(16))


def test_a_commit_that_arrives_after_another_writer_has_the_number_is_void(tmp_path: Path) -> None:
    bucket = landed(tmp_path)
    writer = opened(bucket)
    rolls.land(writer, 9, 12)
    assert not bucket.create(entry_name(2), b"late")
    assert rolls.end_of(writer.refresh()) == 12
    writer.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_copy_without_an_answer_is_repeated(tmp_path: Path, moment: str) -> None:
    bucket = LocalBucket(tmp_path)
    writer = opened(bucket)
    setattr(bucket, moment, fail_once("copy", ".jsonl"))
    rolls.land(writer, -1, 9)
    assert rolls.rows(tmp_path) == list(range(10))
    writer.close()


class LateBucket(LocalBucket):
    """A store that answers a copy before it has made it: ``late`` has those that are under way.

    ``begun`` is the content of an object while its copy is under way; None: there is no object.
    """

    def __init__(self, path: Path, begun: bytes | None = None) -> None:
        super().__init__(path)
        self.late: list[tuple[str, str]] = []
        self.begun = begun
        self.copies_later = begun is not None
        self.pauses = 0

    copies_later = False

    def copy(self, source: str, target: str) -> bool:
        if self.head(source) is None:
            return False
        self.late.append((source, target))
        if self.begun is not None:
            self.put(target, self.begun)
        return True

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        self.pauses += 1
        if self.pauses == 12:  # the first ones were given up
            LocalBucket.copy(self, *self.late[-1])
        return stop.is_set() or self.pauses > 20


BEGUN = [None, b"", b"{", b"x" * len("".join(f'{{"value": {n}}}\n' for n in range(10)))]


@pytest.mark.parametrize("begun", BEGUN, ids=["nothing", "empty", "a part", "its size"])
def test_a_copy_that_is_answered_before_it_is_made_is_waited_for(
    tmp_path: Path, begun: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBucket, "pause", LateBucket.pause)
    bucket = LateBucket(tmp_path, begun)
    said: list[str | None] = []
    writer = opened(bucket, on_full=said.append)
    rolls.land(writer, -1, 9)
    assert rolls.rows(tmp_path) == list(range(10))
    assert said[0] is not None and "the copy has" in said[0] and "waiting for the store" in said[0] and said[-1] is None
    assert len(bucket.late) == 3, "a copy that the store has given up is asked for again"
    writer.close()


def test_what_an_unfinished_copy_has_left_is_copied_again(tmp_path: Path) -> None:
    writer = DatasetWriter("", rolls.options(), LocalBucket(tmp_path), rolls.stop_at("entry-linked"))
    writer.open()
    with pytest.raises(rolls.Stopped):
        rolls.land(writer, -1, 9)
    bucket = LocalBucket(tmp_path)
    bucket.put("000000000001-0.jsonl", b"")
    second = opened(bucket)
    assert rolls.rows(tmp_path) == list(range(10))
    second.close()
    writer.close()


def test_a_staged_file_that_is_deleted_before_its_copy_is_a_loss_that_is_told(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)

    def delete(kind: str, name: str) -> None:
        if kind == "copy":
            for staged in tmp_path.rglob("*.part"):
                staged.unlink()

    bucket.before = delete
    writer = opened(bucket)
    with pytest.raises(DatasetDamagedError, match=r"000000000001-0.jsonl, a file of log entry 1, was deleted"):
        rolls.land(writer, -1, 9)
    writer.close()


def test_a_writer_that_dies_between_entry_and_copy_is_published_by_the_next(tmp_path: Path) -> None:
    writer = DatasetWriter("", rolls.options(), LocalBucket(tmp_path), rolls.stop_at("entry-linked"))
    writer.open()
    with pytest.raises(rolls.Stopped):
        rolls.land(writer, -1, 9)
    assert rolls.rows(tmp_path) == [] and rolls.entries(tmp_path) == 1
    # Nothing was closed, as after SIGKILL: the lock is there, and it is young.
    second = opened(LocalBucket(tmp_path))
    assert rolls.rows(tmp_path) == list(range(10)) and rolls.end_of(second.coverage) == 9
    second.close()
    assert rolls.staging(tmp_path) != [], "the first writer may live"
    writer.close()


def test_a_file_that_has_expired_behind_its_copy_is_not_waited_for(tmp_path: Path) -> None:
    """Two writers publish it; while one of them looks for its copy, a third process deletes what the other has made."""

    class Expiring(LocalBucket):
        def copy(self, source: str, target: str) -> bool:
            made = super().copy(source, target)
            self.delete([source, target])
            return made

        def pause(self, seconds: float, stop: threading.Event) -> bool:
            pauses.append(seconds)
            return stop.is_set() or len(pauses) > 20

    pauses: list[float] = []
    writer = DatasetWriter("", rolls.options(), LocalBucket(tmp_path), rolls.stop_at("entry-linked"))
    writer.open()
    with pytest.raises(rolls.Stopped):
        rolls.land(writer, -1, 9)
    second = opened(Expiring(tmp_path))
    assert rolls.end_of(second.coverage) == 9
    second.close()
    writer.close()


# --- R10


def test_a_foreign_object_is_not_replaced(tmp_path: Path) -> None:
    bucket = landed(tmp_path)
    bucket.put("000000000002-0.jsonl", b'{"value": 99}\n')
    writer = opened(bucket)
    with pytest.raises(DatasetDamagedError, match=r"000000000002-0.jsonl exists, but the commit log ends with entry 1"):
        rolls.land(writer, 9, 12)
    writer.close()
    assert bucket.get("000000000002-0.jsonl") == b'{"value": 99}\n' and rolls.entries(tmp_path) == 1


def test_publishing_does_not_replace_another_object(tmp_path: Path) -> None:
    content = b'{"value": 99}\n'
    bucket = LocalBucket(tmp_path)
    writer = DatasetWriter("", rolls.options(), bucket, rolls.stop_at("entry-linked"))
    writer.open()
    with pytest.raises(rolls.Stopped):
        rolls.land(writer, -1, 0)
    bucket.put("000000000001-0.jsonl", content)
    second = DatasetWriter("", rolls.options(), bucket)
    with pytest.raises(DatasetDamagedError, match=r"000000000001-0.jsonl exists, and is not the file"):
        second.open()
    assert bucket.get("000000000001-0.jsonl") == content
    # The same bytes are no conflict: its writer died after the copy.
    bucket.put("000000000001-0.jsonl", b'{"value": 0}\n')
    assert rolls.end_of(second.open()) == 0
    second.close()
    writer.close()


# --- uploads


def test_a_large_file_is_sent_in_parts_of_one_size(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    writer, parts = opened(bucket), bucket.parts
    staged = writer.stage()
    content = bytes(range(250)) * 4 * (2 * PART_BYTES // 1000 + 5)
    for first in range(0, len(content), 3_000_000):
        staged.file.write(content[first : first + 3_000_000])
    assert parts == [PART_BYTES, PART_BYTES], "sent while it is written"
    assert bucket.names(f"{STAGING}/{_writer(bucket)}") == ["lock"], "it exists when it is whole"
    staged.rows = 1
    writer.commit([staged], [rolls.span(-1, 0)])
    writer.close()
    assert parts == [PART_BYTES, PART_BYTES, len(content) - 2 * PART_BYTES]
    assert bucket.get("000000000001-0.jsonl") == content
    # The checksum in the log is that of all parts.
    assert [problem.kind for problem in verify("", medium=bucket, deep=True).problems] == ["unreadable"]


def _writer(bucket: Bucket) -> str:
    (name,) = bucket.names(STAGING)
    return name


class Cramped(io.FileIO):
    """A temporary file on a disk that is full now and then: half of a write is done, and the next one fails."""

    code = errno.EDQUOT
    writes = 0

    def write(self, data: Any) -> int:
        Cramped.writes += 1
        if Cramped.writes % 3 == 0:
            raise OSError(self.code, os.strerror(self.code))
        return super().write(data[: max(1, len(data) // 2)])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_for_temporary_files_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(Cramped, "code", code)
    monkeypatch.setattr(Cramped, "writes", 0)
    monkeypatch.setattr(
        "fastwire_daemon.dataset.storage.upload.TemporaryFile", lambda buffering: Cramped(tmp_path / "part", "w+b")
    )
    said: list[str | None] = []
    bucket = LocalBucket(tmp_path / "bucket")
    writer = opened(bucket, on_full=said.append)
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            rolls.stage(writer, range(30_000))
        writer.close()
        assert rolls.entries(tmp_path / "bucket") == 0
        return
    writer.commit([rolls.stage(writer, range(30_000))], [rolls.span(-1, 29_999)])
    assert any(text and "(TMPDIR)" in text and "space for temporary files" in text for text in said)
    assert rolls.rows(tmp_path / "bucket") == list(range(30_000))
    assert verify("", medium=bucket, deep=True).ok
    writer.close()


class LosesPart(LocalBucket):
    """Part number ``lost`` of all that are sent, from 0, has no answer."""

    def __init__(self, path: Path, lost: int) -> None:
        super().__init__(path)
        self.lost = lost

    def upload(self, name: str) -> Upload:
        begun = super().upload(name)
        send = begun.write

        def lossy(part: bytes) -> None:
            send(part)
            if len(self.parts) == self.lost + 1:
                raise StoreAwayError("no answer")

        begun.write = lossy  # type: ignore[method-assign] # the answer to one part is lost
        return begun


def test_the_first_part_is_sent_again_as_a_new_upload(tmp_path: Path) -> None:
    """All its bytes are still here, so that a store without an answer costs no roll."""
    bucket = LosesPart(tmp_path, 0)
    told: list[str | None] = []
    writer = opened(bucket, on_full=told.append)
    staged = writer.stage()
    content = bytes(range(250)) * 4 * (PART_BYTES // 1000 + 5)
    staged.file.write(content)
    assert told[1:] == [None] and "no answer" in str(told[0])
    staged.rows = 1
    writer.commit([staged], [rolls.span(-1, 0)])
    writer.close()
    assert bucket.parts == [PART_BYTES, PART_BYTES, len(content) - PART_BYTES]
    assert bucket.get("000000000001-0.jsonl") == content


def test_a_later_part_that_cannot_be_sent_voids_the_roll(tmp_path: Path) -> None:
    writer = opened(LosesPart(tmp_path, 1))
    staged = writer.stage()
    with pytest.raises(StoreAwayError):
        staged.file.write(bytes(2 * PART_BYTES))
    writer.close()
    assert rolls.entries(tmp_path) == 0 and rolls.rows(tmp_path) == []


# --- leases


def test_the_staging_of_a_writer_is_cleared_when_its_lease_has_ended(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    dead = opened(bucket)
    rolls.land(dead, -1, 0)
    # A part of a roll whose writer was killed: the lock is not renewed.
    dead.stage()
    bucket.put(f"{STAGING}/{_writer(bucket)}/9-0.part", b"half")
    lock = tmp_path / STAGING / _writer(bucket) / "lock"
    young = opened(bucket)
    young.close()
    assert lock.exists() and rolls.entries(tmp_path) == 1, "a young lock may be that of a living writer"
    old = lock.stat().st_mtime - 61
    os.utime(lock, (old, old))
    writer = opened(bucket)
    assert rolls.entry(tmp_path, 2).fence and [*rolls.staging(tmp_path)] == [f"{_writer(bucket)}/lock"]
    with pytest.raises(FencedError):
        rolls.land(dead, 0, 5)
    dead.open()
    rolls.land(dead, 0, 3)
    for each in (dead, writer):
        each.close()
    assert rolls.rows(tmp_path) == list(range(4)) and rolls.staging(tmp_path) == []


def test_a_lock_is_renewed_until_its_writer_ends(tmp_path: Path) -> None:
    renewed = threading.Event()
    bucket = LocalBucket(tmp_path, lease_s=0.04)
    bucket.after = lambda kind, name: renewed.set() if (kind, name) == ("put", "x/lock") else None
    bucket.create("x/lock", b"owner")
    lease = bucket.renew("x/lock", b"owner")
    assert renewed.wait(30) and bucket.get("x/lock") == b"owner"
    lease.end()


def test_a_failed_renewal_is_followed_by_the_next(tmp_path: Path) -> None:
    renewed = threading.Event()
    bucket = LocalBucket(tmp_path, lease_s=0.04)
    bucket.before = fail_once("put", "lock")
    bucket.after = lambda kind, name: renewed.set() if kind == "put" else None
    lease = bucket.renew("x/lock", b"owner")
    assert renewed.wait(30)
    lease.end()


# --- verify and check


def test_verify_sees_what_is_wrong_in_a_store(tmp_path: Path) -> None:
    bucket = landed(tmp_path, 3)
    content = bucket.get("000000000001-0.jsonl")
    assert content is not None
    bucket.put("000000000001-0.jsonl", content.replace(b"5", b"6"))
    bucket.delete(["000000000002-0.jsonl"])
    bucket.put("t=1/stray.jsonl", b"")
    found = {(problem.kind, problem.where) for problem in verify("", medium=bucket).problems}
    assert found == {
        ("content", "000000000001-0.jsonl"),
        ("missing", "000000000002-0.jsonl"),
        ("stray", "t=1/stray.jsonl"),
    }


def test_the_probe_of_a_store_leaves_nothing(tmp_path: Path) -> None:
    assert all(check.ok for check in probe_bucket(LocalBucket(tmp_path)))
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_a_store_where_two_writers_win_is_refused(tmp_path: Path) -> None:
    class Ignorant(LocalBucket):
        def create(self, name: str, data: bytes) -> bool:
            self.put(name, data)
            return True

    refused = [check for check in probe_bucket(Ignorant(tmp_path)) if not check.ok]
    assert [check.check for check in refused] == ["create an object once"]
    assert "two daemons could both believe that they committed" in refused[0].detail


def test_a_store_that_forgets_what_it_created_is_refused(tmp_path: Path) -> None:
    class Forgetful(LocalBucket):
        def create(self, name: str, data: bytes) -> bool:
            created = super().create(name, data)
            if created:
                self.delete([name])
            return created

    assert [check.ok for check in probe_bucket(Forgetful(tmp_path))].count(False) >= 1


def test_a_store_that_refuses_is_named(tmp_path: Path) -> None:
    class Refusing(LocalBucket):
        def put(self, name: str, data: bytes) -> None:
            raise PermissionError("the store refuses it: AccessDenied: Access Denied")

    (check,) = probe_bucket(Refusing(tmp_path))
    assert (check.check, check.ok) == ("write an object", False) and "AccessDenied" in check.detail


class BreaksOff(LocalBucket):
    """Each page of a listing has one name; after the first two the answer is cut, once."""

    cut = False

    def pages(self, folder: str, behind: str = "") -> Iterator[list[str]]:
        for count, name in enumerate(sorted(name for page in super().pages(folder, behind) for name in page)):
            if count == 2 and not self.cut:
                self.cut = True
                raise StoreAwayError("the answer ended in its middle")
            yield [name]


def test_a_listing_that_breaks_off_is_continued(tmp_path: Path) -> None:
    """It names each object once: the end of a log, and what is staged, are looked for in it."""
    bucket = BreaksOff(tmp_path)
    for number in range(5):
        bucket.put(f"in/{number}", b"")
    told: list[str | None] = []
    storage = storage_at("", bucket, on_full=told.append)
    assert list(storage.walk("in")) == list("01234")
    assert bucket.cut and told == ["the answer ended in its middle: s3://bucket/orders/in; waiting for the store", None]
