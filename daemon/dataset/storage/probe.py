"""Tests whether a file system or an object store has the guarantees that the commit protocol needs."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import NamedTuple

from .bucket import Bucket
from .disk import Disk

_RACERS = 8
_ROUNDS = 10


class Check(NamedTuple):
    """One test of a file system or an object store: its name, its result, and an explanation."""

    check: str
    ok: bool
    detail: str


def probe(path: str, disk: Disk | None = None) -> list[Check]:
    """Test whether the file system under ``path`` has the guarantees that the commit protocol needs.

    The tests use a hidden folder that is removed afterwards, in the nearest existing folder if ``path`` does not exist
    yet; no dataset is created.
    """
    disk = disk or Disk()
    above = os.path.abspath(path)
    while not disk.is_folder(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    place = f"{above}/.fastwire-probe-{disk.new_name()}"
    checks: list[Check] = []
    try:
        disk.make_folder(place)
    except OSError as exc:
        return [Check("make a folder", False, f"{above}: {exc.strerror}")]
    try:
        for name, question in _QUESTIONS:
            try:
                detail = question(disk, place)
            except OSError as exc:
                checks.append(Check(name, False, f"{above}: {exc.strerror or exc}"))
            else:
                checks.append(Check(name, not detail, detail or above))
    finally:
        for name in ("a/file", "a/second", "b/moved", "lock"):
            disk.unlink(f"{place}/{name}")
        for name in ("/a", "/b", ""):
            disk.remove_folder(place + name)
    return checks


def _ask_write(disk: Disk, place: str) -> str:
    for name in ("a", "b"):
        disk.make_folder(f"{place}/{name}")
    file = disk.create(f"{place}/a/file")
    try:
        disk.write(file, memoryview(b"fastwire"))
        disk.sync([file])
    finally:
        disk.close(file)
    return ""


def _ask_link(disk: Disk, place: str) -> str:
    disk.link(f"{place}/a/file", f"{place}/a/second")
    return "" if disk.read(f"{place}/a/second") == b"fastwire" else "the second name shows another file"


def _ask_second_link(disk: Disk, place: str) -> str:
    try:
        disk.link(f"{place}/a/file", f"{place}/a/second")
    except FileExistsError:
        return ""
    return "a name that is taken was given again: two writers could both believe that they committed"


def _ask_rename(disk: Disk, place: str) -> str:
    disk.rename(f"{place}/a/file", f"{place}/b/moved")
    return "" if disk.read(f"{place}/b/moved") == b"fastwire" else "the moved file is not there"


def _ask_folder_sync(disk: Disk, place: str) -> str:
    disk.sync(folders=[f"{place}/a", f"{place}/b", place])
    return ""


def _ask_lock(disk: Disk, place: str) -> str:
    first = disk.lock(f"{place}/lock")
    if first is None:
        return "a new file is locked already"
    try:
        second = disk.lock(f"{place}/lock")
    finally:
        disk.unlock(first)
    if second is None:
        return ""
    disk.unlock(second)
    return "a lock was given twice: running writers will be taken for dead, and must start over"


_QUESTIONS: tuple[tuple[str, Callable[[Disk, str], str]], ...] = (
    ("write a file and sync it", _ask_write),
    ("link", _ask_link),
    ("second link refused", _ask_second_link),
    ("rename between folders", _ask_rename),
    ("sync a folder", _ask_folder_sync),
    ("lock a file", _ask_lock),
)


def probe_bucket(bucket: Bucket) -> list[Check]:
    """Test whether an object store has the guarantees that the commit protocol needs.

    The tests use hidden objects that are deleted afterwards; no dataset is created.
    """
    place = f".fastwire-probe-{bucket.new_name()}"
    checks: list[Check] = []
    try:
        for name, question in _STORE_QUESTIONS:
            try:
                detail = question(bucket, place)
            except OSError as exc:
                return [*checks, Check(name, False, f"{bucket.url}: {exc}")]
            checks.append(Check(name, not detail, detail or bucket.url))
    finally:
        try:
            bucket.delete([f"{place}/{name}" for name in bucket.walk(place)])
        except OSError:
            pass  # the checks say more
    return checks


def _ask_put(bucket: Bucket, place: str) -> str:
    bucket.put(f"{place}/t=a%2Fb/file", b"fastwire")
    return "" if bucket.get(f"{place}/t=a%2Fb/file") == b"fastwire" else "an object that was written cannot be read"


def _ask_create(bucket: Bucket, place: str) -> str:
    """Create objects by many threads at once: one of each round may succeed, and its content must stay."""
    start = Barrier(_RACERS)

    def race(name: str, racer: int) -> bool:
        start.wait()
        return bucket.create(name, b"%d" % racer)

    with ThreadPoolExecutor(_RACERS, "probe") as threads:
        for number in range(_ROUNDS):
            name = f"{place}/{number}.json"
            won = list(threads.map(partial(race, name), range(_RACERS)))
            if won.count(True) > 1:
                return (
                    f"{won.count(True)} of {_RACERS} writers created the same object: two daemons could both believe "
                    "that they committed. The store ignores If-None-Match; a newer version of it may not"
                )
            # The answer to the winner may have been lost; what counts is that no other content replaces its own.
            if (content := bucket.get(name)) is None or (True in won and content != b"%d" % won.index(True)):
                return f"the object that a writer has created has the content {content!r}"
            if bucket.create(name, b"late") or bucket.get(name) != content:
                return "an object that exists was created again: two daemons could both believe that they committed"
    return ""


def _ask_copy(bucket: Bucket, place: str) -> str:
    if not bucket.copy(f"{place}/0.json", f"{place}/t=a%2Fb/copy"):
        return "an object that was written is not there"
    if bucket.copy(f"{place}/none", f"{place}/t=a%2Fb/none"):
        return "an object that does not exist was copied"
    return "" if bucket.get(f"{place}/t=a%2Fb/copy") == bucket.get(f"{place}/0.json") else "the copy is another object"


def _ask_list(bucket: Bucket, place: str) -> str:
    names = bucket.names(f"{place}/t=a%2Fb")
    return "" if names == ["copy", "file"] else f"a listing shows {names}, and not what was written"


def _ask_delete(bucket: Bucket, place: str) -> str:
    bucket.delete([f"{place}/t=a%2Fb/copy", f"{place}/none"])
    return "an object that was deleted is there" if bucket.head(f"{place}/t=a%2Fb/copy") else ""


_STORE_QUESTIONS: tuple[tuple[str, Callable[[Bucket, str], str]], ...] = (
    ("write an object", _ask_put),
    ("create an object once", _ask_create),
    ("copy an object", _ask_copy),
    ("list objects", _ask_list),
    ("delete an object", _ask_delete),
)
