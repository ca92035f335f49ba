"""Erasure: files lose the rows that a condition means and keep their names, whatever interrupts it."""

import gzip
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.coverage import Coverage
from fastwire.position import Position
from fastwire_daemon.dataset.commitlog.entry import ERASING
from fastwire_daemon.dataset.deadletters.replay import Replay
from fastwire_daemon.dataset.erasure.condition import ConditionError, parse_condition
from fastwire_daemon.dataset.erasure.erasure import Erasure, erase
from fastwire_daemon.dataset.erasure.rewrite import rewriter
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.staging import lives
from fastwire_daemon.dataset.storage.base import Storage
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetError, DatasetMismatchError
from tests.support import rolls
from tests.support.store import LocalBucket

SEVEN = parse_condition("value = 7")
STEPS = ["erasure-staged", "erasure-linked", "erasure-synced", "replaced:0", "replaced:1", "erased"]


@pytest.fixture(params=["folder", "store"])
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> LocalBucket | None:
    return LocalBucket(tmp_path / "orders") if request.param == "store" else None


@pytest.fixture
def dataset(tmp_path: Path, medium: Bucket | None) -> Path:
    """Three commits of six rows, the numbers 0 to 8 twice; the second one has dead letters."""
    path = tmp_path / "orders"
    writer = rolls.writer(path, medium)
    writer.open()
    for commit in range(3):
        if commit == 1:
            letters = [(b"about 77", 1), (b"about 8", 2)]
            writer.add_dead_letters([DeadLetter(rolls.log(), Position(9, at), "odd", each, 1) for each, at in letters])
        numbers = [0, 1, 2, 7, 8] if commit != 1 else [3, 4, 5, 6, 7]
        writer.commit([rolls.stage(writer, numbers)], [rolls.span(5 * commit - 1, 5 * commit + 4)])
    writer.close()
    return path


def erased(path: Path, medium: Any = None, condition: str = "value = 7", **options: Any) -> Erasure:
    return erase(path, parse_condition(condition), medium, **options)


def left(path: Path) -> list[Path]:
    return [file for file in path.glob(f"{ERASING}/*") if not file.name.startswith("lock-")]


def test_rows_go_and_files_keep_their_names(dataset: Path, medium: Bucket | None) -> None:
    before = rolls.visible(dataset)
    found = erased(dataset, medium)
    assert (found.files, found.rows, found.looked_into, found.open_rolls, found.unread) == (3, 3, 4, 0, {})
    assert rolls.visible(dataset) == {name: [each for each in numbers if each != 7] for name, numbers in before.items()}
    report = verify(dataset, strict=True, medium=medium, deep=True)
    assert report.ok, report.problems
    assert (report.rows, report.counted_rows, report.erased, report.unerased) == (15, 12, 3, [])
    assert "3 rows were erased by a command" in report.proven
    assert left(dataset) == []
    again = erased(dataset, medium)
    assert (again.files, again.rows) == (0, 0)


def test_what_has_landed_does_not_land_again(dataset: Path, medium: Bucket | None) -> None:
    erased(dataset, medium)
    writer = rolls.writer(dataset, medium)
    assert rolls.end_of(writer.open()) == 14
    rolls.land(writer, 14, 16)
    writer.close()
    assert verify(dataset, medium=medium, deep=True).ok


def test_a_dry_run_says_the_same_and_changes_nothing(dataset: Path, medium: Bucket | None) -> None:
    before = rolls.visible(dataset)
    told = erased(dataset, medium, dry_run=True)
    assert (rolls.visible(dataset), rolls.entries(dataset)) == (before, 3)
    done = erased(dataset, medium)
    assert (told.files, told.rows, told.looked_into) == (done.files, done.rows, done.looked_into)


@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_that_was_interrupted_is_finished_by_the_next(
    dataset: Path, medium: Bucket | None, step: str
) -> None:
    """At each step every reader sees every other row once, and ``verify`` finds no fault."""
    others = sorted(each for each in rolls.rows(dataset) if each != 7)
    with pytest.raises(rolls.Stopped):
        erased(dataset, medium, reached=rolls.stop_at(step))
    assert sorted(each for each in rolls.rows(dataset) if each != 7) == others
    report = verify(dataset, medium=medium, deep=True)
    assert report.ok, report.problems
    committed = rolls.entries(dataset) > 3
    assert len(report.unerased) == {"erasure-linked": 3, "erasure-synced": 3, "replaced:0": 2, "replaced:1": 1}.get(
        step, 0
    )
    assert ("3 rows were erased by a command" in report.proven) == (7 not in rolls.rows(dataset))
    writer = rolls.writer(dataset, medium)  # a daemon comes and goes meanwhile, and old files expire
    writer.open()
    writer.close()
    expire(dataset, 1e9, medium)
    found = erased(dataset, medium)
    assert found.rows == (0 if committed else 3)
    assert sorted(rolls.rows(dataset)) == others
    report = verify(dataset, strict=True, medium=medium, deep=True)
    assert report.ok and report.unerased == [], report
    assert left(dataset) == []


class Watched(Disk):
    """The real disk, which notes the folders that are synced, and the files that are replaced."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        super().sync(files, folders)
        self.done += [f"sync {folder}" for folder in folders]

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.done.append(f"replace {target}")


@pytest.mark.parametrize("medium", ["folder"], indirect=True)
def test_what_another_has_declared_is_durable_before_it_is_done(dataset: Path) -> None:
    """A power cut would leave files that lack rows without an entry that says so."""
    disk = Watched()

    class Overtaken(DatasetWriter):
        def open(self) -> Coverage:
            found = super().open()
            with pytest.raises(rolls.Stopped):
                erased(dataset, reached=rolls.stop_at("erasure-linked"))
            disk.done.clear()
            return found

    assert erased(dataset, disk, make_writer=Overtaken).finished == 3
    first = next(place for place, each in enumerate(disk.done) if each.startswith(f"replace {dataset}/0"))
    assert f"sync {dataset}/_fastwire/log/000000000" in disk.done[:first]


class Slow(LocalBucket):
    """A store for a process that pauses before its first copy."""

    def __init__(self, path: Path, meanwhile: Callable[[], object]) -> None:
        super().__init__(path)
        self._meanwhile: Callable[[], object] | None = meanwhile

    def copy(self, source: str, target: str) -> bool:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().copy(source, target)


@pytest.mark.parametrize("medium", ["store"], indirect=True)
@pytest.mark.parametrize("step", [None, "erasure-linked"])
def test_a_slow_writer_does_not_bring_a_row_back(dataset: Path, medium: Bucket, step: str | None) -> None:
    """It commits, another writer publishes its file for it, a row is erased, and then it copies the file itself."""

    def meanwhile() -> None:
        writer = rolls.writer(dataset, medium)
        writer.open()
        writer.close()
        if step is not None:  # the next erasure finishes it
            with pytest.raises(rolls.Stopped):
                erased(dataset, medium, reached=rolls.stop_at(step))
        erased(dataset, medium)

    slow = rolls.writer(dataset, Slow(dataset, meanwhile))
    slow.open()
    slow.commit([rolls.stage(slow, [7, 10])], [rolls.span(14, 16)])
    slow.close()
    assert 10 in rolls.rows(dataset) and 7 not in rolls.rows(dataset)
    assert verify(dataset, medium=medium, deep=True).ok


def test_a_file_from_a_backup_is_found_and_erased_from_again(dataset: Path, medium: Bucket | None) -> None:
    file = sorted(dataset.glob("*.jsonl"))[0]
    backup = file.read_bytes()
    erased(dataset, medium)
    file.write_bytes(backup)
    (problem,) = verify(dataset, medium=medium, deep=True).problems
    assert problem.kind == "erased"
    assert "is it from a backup?" in problem.text
    assert erased(dataset, medium).rows == 1
    assert verify(dataset, medium=medium, deep=True).ok


def test_dead_letters_with_the_text_lose_their_bytes(dataset: Path, medium: Bucket | None) -> None:
    path = next(dataset.glob("_fastwire/diverted/*.dead"))
    with pytest.raises(DatasetMismatchError, match="no file has all columns"):
        erased(dataset, medium, "person = '77'")
    # The condition has a text, so letters are looked into; no row has it.
    found = erased(dataset, medium, "value IN (-1, '77')")
    assert (found.rows, found.dead_letters, found.dead_letter_files) == (0, 1, 1)
    letters = pa.ipc.open_file(path).read_all()
    assert letters["payload"].to_pylist() == [b"", b"about 8"]
    assert letters["reason"].to_pylist() == ["erased", "odd"]
    with Replay(dataset, medium) as replay:  # an empty value would be another record
        assert [letter.payload for letter in replay.dead_letters()] == [b"about 8"]
    assert verify(dataset, medium=medium, deep=True).ok


def test_a_roll_that_is_open_is_told_and_waited_for(dataset: Path, medium: Bucket | None) -> None:
    writer = rolls.writer(dataset, medium)
    writer.open()
    files = [rolls.stage(writer, [7, 9])]
    files[0].finish()
    if medium is None:
        assert erased(dataset).open_rolls == 1

    def reached(step: str) -> None:
        if step == "erasure-staged" and files:
            writer.commit([files.pop()], [rolls.span(14, 16)])

    if medium is None:
        found = erased(dataset, condition="value IN (7, 8)", wait_s=30.0, reached=reached)
        assert found.open_rolls == 0
        assert 7 not in rolls.rows(dataset)
        assert verify(dataset, deep=True).ok
    writer.close()


def test_a_file_that_has_no_name_yet_is_looked_into_once_it_has(
    dataset: Path, medium: Bucket | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has its entry, and its writer has not renamed it when the erasure looks for the first time."""
    linked, go = threading.Event(), threading.Event()

    def reached(step: str) -> None:
        if step == "entry-linked":
            linked.set()
            assert go.wait(60)

    other = rolls.writer(dataset, medium, reached)
    other.open()
    roll = rolls.stage(other, [77])
    commit = threading.Thread(target=lambda: other.commit([roll], [rolls.span(14, 15)]))

    class Opened(DatasetWriter):
        def open(self) -> Coverage:
            found = super().open()
            commit.start()
            assert linked.wait(60)
            return found

    def publish(seconds: float) -> None:
        go.set()
        commit.join(60)

    monkeypatch.setattr("fastwire_daemon.dataset.erasure.erasure.sleep", publish)
    found = erased(dataset, medium, "value = 77", wait_s=60.0, make_writer=Opened)
    assert (found.rows, found.open_rolls) == (1, 0)
    assert 77 not in rolls.rows(dataset)
    other.close()


def test_a_file_that_was_altered_is_not_touched(dataset: Path, medium: Bucket | None) -> None:
    file = sorted(dataset.glob("*.jsonl"))[1]
    file.write_bytes(file.read_bytes().replace(b"3", b"4"))
    with pytest.raises(DatasetDamagedError, match="is not the file that the log names: it is not touched"):
        erased(dataset, medium)
    assert 7 in rolls.visible(dataset)[file.name]


def test_one_command_at_a_time(dataset: Path, medium: Bucket | None) -> None:
    def reached(step: str) -> None:
        if step == "erasure-staged":
            with pytest.raises(DatasetError, match="another erase is at work"):
                erased(dataset, medium)

    assert erased(dataset, medium, reached=reached).rows == 3


@pytest.mark.parametrize("others", [1, 2])
def test_a_lock_that_was_free_is_not_taken_from_another_command(
    dataset: Path, medium: Bucket | None, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """A slow command has seen that the last one is dead; before it takes the lock, one or two others have had it."""
    with pytest.raises(rolls.Stopped):
        erased(dataset, medium, reached=rolls.stop_at("erasure-linked"))
    looks = 0

    def look(storage: Storage, writer: str) -> bool:
        nonlocal looks
        looks += 1
        found = lives(storage, writer)
        if looks == 1:
            for number in range(others):
                assert erased(dataset, medium, f"value = {number}").rows == 2
        return found

    monkeypatch.setattr("fastwire_daemon.dataset.erasure.erasure.lives", look)
    with pytest.raises(DatasetError, match="another erase is at work"):
        erased(dataset, medium, "value = 8")
    assert looks == 1 + others
    assert sorted(rolls.rows(dataset)) == [each for each in [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 8] if each >= others]
    assert erased(dataset, medium, "value = 8").rows == 2


def test_a_file_that_expires_meanwhile_does_not_come_back(tmp_path: Path, dataset: Path, medium: Bucket | None) -> None:
    def reached(step: str) -> None:
        if step == "erasure-synced":
            expire(dataset, -10.0, medium)

    erased(dataset, medium, reached=reached)
    assert rolls.rows(dataset) == []
    assert verify(dataset, strict=True, medium=medium).ok


def test_there_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(DatasetMismatchError, match="there is no dataset here"):
        erased(tmp_path)


# --- formats


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CUSTOMER = pa.struct([("id", pa.int64())])
TABLE = pa.table(
    {
        "key": pa.array([b"a", b"b", None, b"a"], pa.binary()),
        "topic": pa.array(["t", "t", "u", "u"]).dictionary_encode(),
        "timestamp": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
        "headers": pa.array([[{"key": "k", "value": b"v"}], None, [], None], HEADERS),
        "customer": pa.array([{"id": 7}, {"id": 8}, None, {"id": 9}], CUSTOMER),
    }
)


def packed(extension: str) -> bytes:
    out = BytesIO()
    if extension == "parquet":
        pq.write_table(TABLE, out, row_group_size=2, compression="zstd")
    else:
        with pa.ipc.new_file(out, TABLE.schema) as writer:
            writer.write_table(TABLE)
    return out.getvalue()


def unpacked(extension: str, data: bytes) -> pa.Table:
    return pq.read_table(BytesIO(data)) if extension == "parquet" else pa.ipc.open_file(BytesIO(data)).read_all()


@pytest.mark.parametrize("extension", ["parquet", "arrow"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("key = 'a'", [1, 2]),
        ("key IN ('a', 'b')", [2]),
        ("topic = 't' AND key = 'a'", [1, 2, 3]),
        ("customer.id = 8", [0, 2, 3]),
        ('"customer"."id" in (7, 9)', [1, 2]),
        ("timestamp = '1970-01-01T00:00:00.000003Z'", [0, 1, 3]),
        ("key = 'x'", [0, 1, 2, 3]),
        ("topic IN ('t', 'u')", []),
    ],
)
def test_rows_of_a_file(extension: str, text: str, kept: list[int]) -> None:
    condition, how, data = parse_condition(text), rewriter(extension), packed(extension)
    assert how is not None
    assert how.look(BytesIO(data), condition) == (4 - len(kept), True)
    out = BytesIO()
    assert how.copy(BytesIO(data), condition, out.write) == len(kept)
    found = unpacked(extension, out.getvalue())
    assert found.schema == unpacked(extension, data).schema
    assert found.to_pylist() == TABLE.take(pa.array(kept, pa.int64())).to_pylist()
    if extension == "parquet" and kept:
        codecs = pq.read_metadata(BytesIO(out.getvalue())).row_group(0)
        assert {codecs.column(at).compression for at in range(codecs.num_columns)} == {"ZSTD"}


@pytest.mark.parametrize("extension", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_rows_of_lines(extension: str) -> None:
    import zstandard

    lines = [json.dumps({"key": key, "n": {"id": at}}).encode() + b"\n" for at, key in enumerate(["a", None, "b", "a"])]
    pack: Callable[[bytes], bytes] = {
        "jsonl": lambda data: data,
        "jsonl.gz": gzip.compress,
        "jsonl.zst": zstandard.compress,
    }[extension]
    unpack: Callable[[bytes], bytes] = {
        "jsonl": lambda data: data,
        "jsonl.gz": gzip.decompress,
        "jsonl.zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    }[extension]
    how, data = rewriter(extension), pack(b"".join(lines))
    assert how is not None
    for text, kept in (("key = 'a'", [1, 2]), ("n.id = 2", [0, 1, 3]), ("key = 'a' AND n.id = 0", [1, 2, 3])):
        out = BytesIO()
        assert how.look(BytesIO(data), parse_condition(text)) == (4 - len(kept), True)
        assert how.copy(BytesIO(data), parse_condition(text), out.write) == len(kept)
        assert unpack(out.getvalue()) == b"".join(lines[at] for at in kept)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "key",
        "key =",
        "key = a",
        "key = 'a' OR b = 1",
        "1 = key",
        "key IN ('a'",
        "key = 'a' x",
        "key > 1",
        "key.= 1",
    ],
)
def test_conditions_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConditionError, match="must be such as"):
        parse_condition(text)


@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_numbers_that_have_become_text_are_named_as_both(extension: str) -> None:
    how, condition = rewriter(extension), parse_condition("id IN (7, '7', 'x')")
    assert how is not None
    for column in (pa.array([7, 8]), pa.array(["7", "8"])):
        outlet, table = BytesIO(), pa.table({"id": column})
        if extension == "parquet":
            pq.write_table(table, outlet)
        else:
            with pyarrow.ipc.new_file(outlet, table.schema) as writer:
                writer.write_table(table)
        assert how.look(BytesIO(outlet.getvalue()), condition).rows == 1


LINES = b"""{"id": 7, "done": true, "load": 0.5, "customer": {"id": 1}, "tags": ["x"], "_key": "a"}
{"id": "7", "done": false, "load": "NaN", "customer": {"id": 2}, "tags": null, "_key": {"base64": "/w=="}}
{"id": null, "done": null, "load": null, "customer": {"id": null}, "tags": null, "_key": null}
"""


@pytest.mark.parametrize("text", ["key = 1", "customer.id = 'a'", "customer = 1", "topic = true", "timestamp = 'x'"])
def test_literals_that_a_column_cannot_have(text: str) -> None:
    how = rewriter("parquet")
    assert how is not None
    with pytest.raises(ConditionError, match=r"is no value of the column|name one of its columns"):
        how.look(BytesIO(packed("parquet")), parse_condition(text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("id = 7", "7 is no value of the column id, which has a text"),  # it has become text in later lines
        ("id = '7'", "'7' is no value of the column id, which has a number"),
        ("customer = 'a'", "customer is an object: name one of its columns"),
        ("done = 1", "1 is no value of the column done, which has a truth value"),
        ("id IN (7, '7') AND done = 'true'", "'true' is no value of the column done, which has a truth value"),
        ("tags = 'x'", "tags is an array: name one of its columns"),
    ],
)
def test_literals_that_a_value_of_a_line_cannot_have(text: str, says: str) -> None:
    how = rewriter("jsonl")
    assert how is not None
    with pytest.raises(ConditionError, match=f"^{says}$"):
        how.look(BytesIO(LINES), parse_condition(text))


@pytest.mark.parametrize(
    ("text", "meant", "known"),
    [
        ("id IN (7, '7')", 2, True),
        ("id IN (7, '7') AND done = true", 1, True),
        ("load = 0.5", 1, True),  # beside a NaN, which is a text
        ("_key = 'a'", 1, True),  # beside one that is no text
        ("customer.id = 1", 1, True),
        ("customer.nr = 1", 0, False),
        ("nr = 1", 0, False),
    ],
)
def test_rows_of_lines_of_many_kinds(text: str, meant: int, known: bool) -> None:
    how = rewriter("jsonl")
    assert how is not None
    assert how.look(BytesIO(LINES), parse_condition(text)) == (meant, known)


# --- processes

KILLED = """
import os, signal, sys
from fastwire_daemon.dataset.erasure.condition import parse_condition
from fastwire_daemon.dataset.erasure.erasure import erase
path, step = sys.argv[1:]
kill = lambda at: os.kill(os.getpid(), signal.SIGKILL) if at == step else None
erase(path, parse_condition("value = 7"), reached=kill)
"""


@pytest.mark.parametrize("medium", [None])
@pytest.mark.parametrize("step", STEPS)
def test_a_command_that_is_killed(dataset: Path, medium: None, step: str) -> None:
    """Nothing is tidied up behind it, its lock least of all."""
    others = sorted(each for each in rolls.rows(dataset) if each != 7)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(dataset), step], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert sorted(each for each in rolls.rows(dataset) if each != 7) == others
    report = verify(dataset, deep=True)
    assert report.ok, report.problems
    writer = rolls.writer(dataset)  # its staging is fenced and cleared away, and the files of the erasure are not
    writer.open()
    rolls.land(writer, 14, 16)
    writer.close()
    erased(dataset)
    assert sorted(rolls.rows(dataset)) == sorted([*others, 15, 16])
    report = verify(dataset, strict=True, deep=True)
    assert report.ok and report.unerased == [], report
    assert left(dataset) == []


def test_readers_see_every_other_row_once_at_every_step(dataset: Path, medium: Bucket | None) -> None:
    others = sorted(each for each in rolls.rows(dataset) if each != 7)
    seen: list[str] = []

    def reached(step: str) -> None:
        seen.append(step)
        assert sorted(each for each in rolls.rows(dataset) if each != 7) == others
        assert verify(dataset, medium=medium, deep=True).ok

    erased(dataset, medium, reached=reached)
    assert set(STEPS) <= set(seen)
