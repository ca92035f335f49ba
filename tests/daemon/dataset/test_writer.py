"""The commit on a real file system: what is where after each step, and what a writer refuses."""

import os
import shutil
import threading
import time
from io import BytesIO
from pathlib import Path

import orjson
import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.coverage import UndeclaredGapError
from fastwire.position import Gap, Log, Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.dataset.commitlog.deadletterfile import read_dead_letters
from fastwire_daemon.dataset.commitlog.entry import entry_name
from fastwire_daemon.dataset.description import DESCRIPTION, FORMAT
from fastwire_daemon.dataset.level import level_directory
from fastwire_daemon.dataset.staging import StagedFile
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import (
    DatasetDamagedError,
    DatasetError,
    DatasetMismatchError,
    FatalDiskError,
    SinkFailedError,
    Superseded,
)
from tests.support import rolls


def test_opening_creates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a" / "orders"
    writer = rolls.writer(path)
    assert len(writer.open()) == 0
    assert not writer.exists and writer.cluster == "broker:6650"
    assert len(writer.refresh()) == 0
    writer.close()
    assert not path.parent.exists()


def test_the_first_roll(tmp_path: Path) -> None:
    path = tmp_path / "a" / "orders"
    steps: list[str] = []
    writer = rolls.writer(path, reached=steps.append)
    writer.open()
    staged = rolls.stage(writer, range(3))
    assert writer.exists
    assert rolls.visible(path) == {}
    coverage = writer.commit([staged], [rolls.begun(), rolls.span(-1, 2, rows=3)])
    assert rolls.visible(path) == {"000000000001-0.jsonl": [0, 1, 2]}
    assert rolls.end_of(coverage) == 2 and coverage == writer.coverage and writer.entries == 1
    assert rolls.staging(path) == [f"{rolls.entry(path, 1).writer}/lock"]
    description = orjson.loads((path / DESCRIPTION).read_bytes())
    assert description["format"] == FORMAT
    assert {name: description[name] for name in ("system", "cluster", "columns", "split", "partition_by")} == {
        "system": "pulsar",
        "cluster": "broker:6650",
        "columns": ["value"],
        "split": "none",
        "partition_by": "none",
    }
    assert steps == [
        "staging-made",
        "dataset-created",
        "log-read",
        "files-finished",
        "folders-made",
        "files-synced",
        "staging-synced",
        "entry-linked",
        "log-synced",
        "published:0",
        "committed",
    ]
    writer.close()
    assert rolls.staging(path) == [] and list((path / "_fastwire/staging").iterdir()) == []


def test_going_on(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 2)
    rolls.land(writer, 2, 5)
    first = rolls.entry(tmp_path, 2)
    assert rolls.end_of(writer.open()) == 5
    rolls.land(writer, 5, 6)
    assert rolls.visible(tmp_path) == {
        "000000000001-0.jsonl": [0, 1, 2],
        "000000000002-0.jsonl": [3, 4, 5],
        "000000000003-0.jsonl": [6],
    }
    assert rolls.entry(tmp_path, 3).writer != first.writer
    writer.close()


def test_a_file_may_be_large_and_written_in_any_pieces(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    staged = writer.stage()
    expected = b""
    for size in (1, 1000, 300_000, 0, 5, 262_144, 262_143, 2_000_000, 7):
        piece = os.urandom(size)
        expected += piece
        assert staged.file.write(memoryview(piece)) == size
        assert staged.nbytes == staged.file.tell() == len(expected)
    staged.rows = 1
    writer.commit([staged], [rolls.span(-1, 0, rows=1)])
    assert (tmp_path / "000000000001-0.jsonl").read_bytes() == expected
    assert rolls.entry(tmp_path, 1).nbytes == len(expected)
    with pytest.raises(ValueError, match="is closed"):
        staged.file.write(b"late")
    writer.close()


def test_a_new_file_looks_new(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    staged = rolls.stage(writer, [0])
    staged.finish()
    part = next(tmp_path.rglob("*.part"))
    os.utime(part, (1, 1))
    before = time.time()
    writer.commit([staged], [rolls.span(-1, 0)])
    assert (tmp_path / "000000000001-0.jsonl").stat().st_mtime >= before - 1
    writer.close()


def test_levels(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, split="partition", partition_by="day")
    writer.open()
    with pytest.raises(ValueError, match="does not have the levels t/p/dt"):
        writer.stage("")
    folders = [
        level_directory("partition", "day", topic=rolls.log().topic, partition=str(partition), timestamp_us=0)
        for partition in (0, 1)
    ]
    files = [rolls.stage(writer, [number], folder) for number, folder in enumerate(folders)]
    writer.commit(files, [rolls.span(-1, 0, partition) for partition in (0, 1)])
    topic = "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders"
    assert rolls.visible(tmp_path) == {
        f"{topic}/p=0/dt=1970-01-01/000000000001-0.jsonl": [0],
        f"{topic}/p=1/dt=1970-01-01/000000000001-1.jsonl": [1],
    }
    writer.close()


# --- what is refused


def test_other_settings_are_refused_all_at_once(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    other = rolls.writer(tmp_path, columns=("key", "value"), split="topic", partition_by="day", extension="parquet")
    with pytest.raises(DatasetMismatchError) as caught:
        other.open()
    assert str(caught.value) == (
        f"the dataset at {tmp_path} was created with other settings, which cannot change. "
        "the file format of the dataset: jsonl; configured: parquet. "
        "split of the dataset: none; configured: topic. "
        "partition_by of the dataset: none; configured: day. "
        "the columns of the dataset: value; configured: key, value. Use a new path"
    )
    assert list((tmp_path / "_fastwire/staging").iterdir()) == []


def test_the_cluster_is_that_of_the_creation(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    moved = rolls.writer(tmp_path, cluster="elsewhere:6650")
    moved.open()
    assert moved.cluster == "broker:6650"
    moved.close()


@pytest.mark.parametrize(
    ("created", "name", "configured", "refused"),
    [
        (("a:6650", "b:6650"), "a:6650,b:6650", ("c:6650", "b:6650"), False),  # one of them is known
        (("a:6650",), "a:6650", ("c:6650",), True),
        (("a:6650",), "prod", ("c:6650",), True),
        (("a:6650",), "a:6650", ("A:6651",), False),  # the same host, with TLS
        (("127.0.0.1:7001",), "127.0.0.1:7001", ("127.0.0.1:7002",), True),
        # Older datasets have a name only, which may be the hosts.
        ((), "a:6650,b:6650", ("b:6650",), False),
        ((), "a:6650,b:6650", ("c:6650",), True),
        ((), "prod", ("c:6650",), False),
        (("a:6650",), "a:6650", (), False),  # a writer that knows of none
    ],
)
def test_hosts_of_another_cluster_are_refused(
    tmp_path: Path, created: tuple[str, ...], name: str, configured: tuple[str, ...], refused: bool
) -> None:
    writer = rolls.writer(tmp_path, cluster=name, hosts=created)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    if refused:
        with pytest.raises(DatasetMismatchError, match=rf'to {configured[0]}: .* set source\.cluster = "{name}"'):
            rolls.writer(tmp_path, cluster=",".join(configured), hosts=configured).open()
    else:
        other = rolls.writer(tmp_path, cluster=",".join(configured) or "else", hosts=configured)
        other.open()
        other.close()
    # Who says that it is the same cluster is believed.
    same = rolls.writer(tmp_path, cluster=name, hosts=configured)
    same.open()
    assert same.cluster == name
    same.close()


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (b"{", DatasetDamagedError, "dataset.json is damaged"),
        (b'{"format":1}', DatasetDamagedError, "dataset.json is damaged"),
        (b'{"format":2}', DatasetMismatchError, "has format 2; this version of fastwire knows 1"),
    ],
)
def test_a_description_that_is_not_ours(tmp_path: Path, content: bytes, error: type[DatasetError], text: str) -> None:
    (tmp_path / DESCRIPTION).parent.mkdir()
    (tmp_path / DESCRIPTION).write_bytes(content)
    with pytest.raises(error, match=text):
        rolls.writer(tmp_path).open()


def test_a_damaged_log_entry_stops_everything(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    (tmp_path / entry_name(2)).write_bytes(b"{")
    with pytest.raises(DatasetDamagedError, match=r"000000000002\.json is damaged"):
        rolls.land(writer, 0, 1)
    with pytest.raises(DatasetDamagedError):
        writer.open()


def test_rows_must_add_up(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    with pytest.raises(ValueError, match="4 rows were given, but 3 are in files and 0 were filtered"):
        writer.commit([rolls.stage(writer, range(3))], [rolls.span(-1, 3, rows=4)])
    assert rolls.visible(tmp_path) == {} and rolls.entries(tmp_path) == 0
    writer.open()
    writer.commit([rolls.stage(writer, range(3))], [rolls.span(-1, 3, rows=4)], filtered=1)
    assert rolls.entry(tmp_path, writer.entries).filtered == 1
    writer.close()


def test_a_reader_in_order_must_not_jump(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 4)
    with pytest.raises(UndeclaredGapError, match="a roll starts at 7:6, but the committed positions end at 7:4"):
        rolls.land(writer, 6, 8)
    writer.open()
    said = Span(rolls.log(), Position(7, 4), Position(7, 4), 0, Gap(Position(7, 6), "retention"))
    writer.commit([rolls.stage(writer, [7, 8])], [said, rolls.span(6, 8)])
    assert rolls.end_of(writer.coverage) == 8
    assert rolls.entry(tmp_path, writer.entries).spans[0] == said
    writer.close()


def test_a_shared_reader_may(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, shared=True)
    writer.open()
    rolls.land(writer, 0, 2)
    rolls.land(writer, 6, 8)
    rolls.land(writer, 3, 4)
    log = rolls.log()
    assert len(writer.coverage.intervals(log)) == 3
    writer.commit([], [], floors={log: Position(7, 4)})
    assert writer.coverage.intervals(log) == ((Position(7, 0), Position(7, 4)), (Position(7, 6), Position(7, 8)))
    assert rolls.entry(tmp_path, 4).shared
    assert rolls.writer(tmp_path).open() == writer.coverage
    # From now on in order: behind a Shared subscription holes are nobody's mistake.
    ordered = rolls.writer(tmp_path)
    ordered.open()
    rolls.land(ordered, 9, 10)
    ordered.close()
    writer.close()


def test_a_log_of_another_system_is_not_mixed_up(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, system="kafka")
    writer.open()
    log = Log("kafka", "id", "orders", "0", "Zm9v")
    writer.commit([rolls.stage(writer, [0])], [Span(log, Position(0, -1), Position(1, 3), 1)])
    with pytest.raises(UndeclaredGapError):
        writer.commit([rolls.stage(writer, [5])], [Span(log, Position(5, -1), Position(6, 3), 1)])
    assert PULSAR_EARLIEST not in (writer.coverage.end(log), None)
    with pytest.raises(DatasetMismatchError, match="the system of the dataset: kafka; configured: pulsar"):
        rolls.writer(tmp_path).open()


def test_what_the_log_could_not_say_is_never_linked(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    with pytest.raises(DatasetDamagedError, match="out of range"):
        writer.commit([], [Span(rolls.log(), Position(7, 1), Position(1 << 63, 1), 0)])
    assert rolls.entries(tmp_path) == 0
    writer.open()
    with pytest.raises(ValueError, match="the log is unknown"):
        writer.commit([], [], floors={rolls.log(9): Position(7, 1)})
    assert len(writer.open()) == 0
    writer.close()


def test_a_writer_that_is_not_open(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    for call in (writer.refresh, writer.stage, lambda: writer.commit([], [rolls.begun()])):
        with pytest.raises(SinkFailedError, match="is not open"):
            call()
    writer.close()
    writer.open()
    staged = rolls.stage(writer, [0])
    writer.open()
    with pytest.raises(ValueError, match="belongs to another roll"):
        writer.commit([staged], [rolls.span(-1, 0)])
    writer.close()
    writer.close()
    assert rolls.visible(tmp_path) == {}


def test_failures_are_told_with_what_was_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = rolls.writer(tmp_path / "file")
    with pytest.raises(FatalDiskError, match="cannot open: "):
        writer.open()


# --- besides rows


def test_files_that_are_left_out_are_deleted(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    left, kept = rolls.stage(writer, [8, 9]), rolls.stage(writer, [0])
    writer.commit([kept], [rolls.span(-1, 0)])
    assert rolls.visible(tmp_path) == {"000000000001-1.jsonl": [0]}
    assert [name for name in rolls.staging(tmp_path) if not name.endswith("/lock")] == []
    with pytest.raises(ValueError, match="is closed"):
        left.file.write(b"x")
    writer.close()


def test_progress_without_rows_is_an_entry_without_files(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    writer.commit([], [rolls.begun()])
    writer.commit([], [rolls.span(-1, 9, rows=0)])
    assert rolls.end_of(writer.coverage) == 9
    assert writer.commit([], []) == writer.coverage and writer.entries == 2
    writer.close()


def test_dead_letters_are_kept_and_come_with_their_entry(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    dead_letters = [
        DeadLetter(rolls.log(), Position(7, 1), "ChecksumMismatch: crc", b"\x00raw", 10),
        DeadLetter(rolls.log(1), Position(7, 2), "DecompressionError: lz4", b"", 1),
    ]
    staged = rolls.stage(writer, [0])
    spans = [rolls.span(-1, 1, rows=1), rolls.span(-1, 2, 1, rows=0)]
    for letter in dead_letters:
        writer.add_dead_letters([letter])
    writer.commit([staged], spans)
    writer.add_dead_letters(dead_letters[:1])
    writer.commit([], [rolls.span(1, 2, rows=0)])
    names = sorted(file.name for file in (tmp_path / "_fastwire/diverted").iterdir())
    assert names == ["000000000001-1.dead", "000000000002-0.dead"]
    table = read_dead_letters(BytesIO((tmp_path / "_fastwire/diverted" / names[0]).read_bytes())).to_pylist()
    assert table[0] == {
        "cluster": "broker:6650",
        "topic": rolls.log().topic,
        "partition": "0",
        "incarnation": "0",
        "position": "7:1",
        "reason": "ChecksumMismatch: crc",
        "rows": 10,
        "payload": b"\x00raw",
    }
    assert table[1]["payload"] == b"" and table[1]["partition"] == "1"
    entry = rolls.entry(tmp_path, 1)
    assert entry.rows == 1 and {part.log.partition: (part.entries, part.rows) for part in entry.dead_letter_counts} == {
        "0": (1, 10),
        "1": (1, 1),
    }
    assert rolls.rows(tmp_path) == [0]
    writer.close()


def test_dead_letters_are_on_disk_before_the_commit(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    letter = DeadLetter(rolls.log(), Position(7, 1), "odd", os.urandom(3 << 20), 1)
    for _ in range(4):
        writer.add_dead_letters([letter])
    (part,) = tmp_path.glob("_fastwire/staging/*/*.part")
    assert part.stat().st_size >= 12 << 20
    assert part.stat().st_size <= writer.dead_letter_bytes < 13 << 20
    writer.commit([], [rolls.span(-1, 1, rows=0)])
    assert writer.dead_letter_bytes == 0
    table = read_dead_letters(BytesIO((tmp_path / "_fastwire/diverted/000000000001-0.dead").read_bytes()))
    assert table.column("payload").to_pylist() == [letter.payload] * 4
    assert rolls.entry(tmp_path, 1).dead_letter_counts[0].entries == 4
    writer.close()


def test_dead_letters_of_a_void_roll_are_gone(tmp_path: Path) -> None:
    letter = DeadLetter(rolls.log(), Position(7, 1), "odd", b"x", 1)
    writer = rolls.writer(tmp_path)
    writer.open()
    writer.add_dead_letters([letter])
    writer.open()
    assert writer.dead_letter_bytes == 0
    rolls.land(writer, -1, 1)
    assert not rolls.entry(tmp_path, 1).dead_letters
    other = rolls.writer(tmp_path)
    other.open()
    rolls.land(other, 1, 2)
    writer.add_dead_letters([letter])
    with pytest.raises(Superseded):
        rolls.land(writer, 1, 2)
    rolls.land(writer, 2, 3)
    assert not rolls.entry(tmp_path, 3).dead_letters and not list(tmp_path.glob("_fastwire/diverted/*"))
    writer.close()
    other.close()


# --- checkpoints


def test_checkpoints_are_made_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DatasetWriter, "checkpoint_every", 4)
    steps: list[str] = []
    writer = rolls.writer(tmp_path, reached=steps.append)
    writer.open()
    for number in range(-1, 8):
        rolls.land(writer, number, number + 1)
    assert steps.count("checkpointed") == 2
    writer.close()
    folder = tmp_path / "_fastwire/checkpoint"
    assert sorted(file.name for file in folder.iterdir()) == ["000000000004.json", "000000000008.json"]
    assert orjson.loads((folder / "000000000008.json").read_bytes())["rows"] == 8
    # What a checkpoint holds need not be read again, but for its last log entry.
    entries = {number: (tmp_path / entry_name(number)).read_bytes() for number in range(1, 8)}
    for number in entries:
        (tmp_path / entry_name(number)).write_bytes(b"damaged")
    other = rolls.writer(tmp_path)
    assert rolls.end_of(other.open()) == 8 and other.entries == 9
    other.close()
    for number, content in entries.items():
        (tmp_path / entry_name(number)).write_bytes(content)
    # One that is lost or damaged costs time only, and the next one is the same whoever makes it.
    data = (folder / "000000000008.json").read_bytes()
    for file in folder.iterdir():
        file.unlink()
    (folder / "000000000004.json").write_bytes(b"damaged")
    again = rolls.writer(tmp_path)
    assert rolls.end_of(again.open()) == 8
    again.close()
    assert (folder / "000000000008.json").read_bytes() == data


def test_checkpoints_come_every_64_entries(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    for number in range(-1, 64):
        writer.commit([], [rolls.span(number, number + 1, rows=0)])
    writer.refresh()
    assert [file.name for file in (tmp_path / "_fastwire/checkpoint").iterdir()] == ["000000000064.json"]
    writer.close()


def test_the_log_goes_on_in_the_next_folder(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    writer.commit([], [rolls.begun()])
    writer.close()
    # As if 998 more had come: reading needs every number, so let a checkpoint stand for them.
    folder = tmp_path / "_fastwire/checkpoint"
    folder.mkdir()
    state = orjson.loads(b'{"format":1,"rows":0,"files":0,"bytes":0}') | {
        "number": 998,
        "coverage": writer.coverage.to_json(),
    }
    (folder / "000000000998.json").write_bytes(orjson.dumps(state))
    for number in range(2, 999):
        shutil.copyfile(tmp_path / entry_name(1), tmp_path / entry_name(number))
    writer.open()
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    assert (tmp_path / "_fastwire/log/000000000/000000000999.json").exists()
    assert (tmp_path / "_fastwire/log/000000001/000000001000.json").exists()
    assert rolls.end_of(writer.open()) == 1
    writer.close()


def test_encoders_stage_on_their_threads_one_at_a_time_with_the_rest(tmp_path: Path) -> None:
    """A checkpoint that is due, and what is to be synced before it, are one thread's business."""
    waited: list[bool] = []
    refreshing = threading.Thread(target=lambda: writer.refresh())

    def reached(step: str) -> None:
        if step == "checkpoint-linked":
            refreshing.start()
            refreshing.join(0.05)
            waited.append(refreshing.is_alive())

    writer = rolls.writer(tmp_path, reached=reached)
    writer.checkpoint_every = 2
    writer.open()
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    staged: list[StagedFile] = []
    encoders = [threading.Thread(target=lambda: staged.append(rolls.stage(writer, [2]))) for _ in range(4)]
    for thread in encoders:
        thread.start()
    for thread in (*encoders, refreshing):
        thread.join()
    assert waited == [True]
    assert sorted(file.index for file in staged) == [0, 1, 2, 3]
    writer.commit(staged, [rolls.span(1, 5)])
    writer.close()
