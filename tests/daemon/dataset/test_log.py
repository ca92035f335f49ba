"""Log entries and checkpoints as bytes: whole, compact, and understood only when they are sound."""

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.coverage import Coverage, OverlapError, UndeclaredGapError
from fastwire.position import Gap, Log, Position, Span
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint, checkpoint_name, newest_checkpoint
from fastwire_daemon.dataset.commitlog.entry import (
    DataFile,
    DeadLetterCount,
    LogEntry,
    Replayed,
    Replaying,
    entry_name,
    pack,
    unpack,
)
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.storage.folder import FolderStorage
from fastwire_daemon.dataset.storage.patience import Patience
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetMismatchError
from tests.support import rolls

WRITER = "0123456789abcdef"


def test_names() -> None:
    assert entry_name(1) == "_fastwire/log/000000000/000000000001.json"
    assert entry_name(1_234_567) == "_fastwire/log/000001234/000001234567.json"
    assert checkpoint_name(64) == "_fastwire/checkpoint/000000000064.json"


def full_entry() -> LogEntry:
    kafka = Log("kafka", "id", "orders", "3", "Zm9v")
    return LogEntry(
        writer=WRITER,
        roll=7,
        at="2026-01-02T03:04:05.678Z",
        files=(DataFile("t=a/p=1/", 0, 5, 500), DataFile("", 1, 6, 600)),
        dead_letters=(DataFile("_fastwire/diverted/", 2, 4, 40),),
        spans=(
            rolls.span(0, 5),
            rolls.span(5, 9),
            Span(kafka, Position(1, -1), Position(3, 4), 2, Gap(Position(9, -1), "retention")),
        ),
        dead_letter_counts=(DeadLetterCount(rolls.log(), 2, 4),),
        filtered=3,
        floors=((rolls.log(), Position(7, 3)),),
        fence=("fedcba9876543210",),
        expired=12,
        replayed=(Replayed(1, 0, 2),),
        replaying=Replaying("kafka://a", "mended", WRITER, (Replayed(2, 3, 3), Replayed(4, 0, 9)), {"rabbit": {}}),
        closes=11,
        shared=True,
    )


def in_order(entry: LogEntry) -> LogEntry:
    """Spans of one log keep their order, logs do not."""
    return replace(entry, spans=tuple(sorted(entry.spans, key=lambda span: (span.log.system, span.log.partition))))


def test_everything_comes_back() -> None:
    entry = full_entry()
    assert in_order(LogEntry.decode(entry.encode(), "x")) == in_order(entry)
    assert (entry.rows, entry.nbytes) == (11, 1100)
    assert entry.folders == {"t=a/p=1", "", "_fastwire/diverted"}


def test_files_are_named_by_the_number_the_entry_got() -> None:
    assert list(full_entry().moves(12, "parquet")) == [
        (f"_fastwire/staging/{WRITER}/7-0.part", "t=a/p=1/000000000012-0.parquet"),
        (f"_fastwire/staging/{WRITER}/7-1.part", "000000000012-1.parquet"),
        (f"_fastwire/staging/{WRITER}/7-2.part", "_fastwire/diverted/000000000012-2.dead"),
    ]


def test_only_what_there_is_to_say() -> None:
    entry = LogEntry(writer=WRITER, roll=1, at="now")
    assert json.loads(entry.encode()) == {"format": 1, "writer": WRITER, "roll": 1, "at": "now"}
    assert LogEntry.decode(entry.encode(), "x") == entry


def many_partitions(count: int) -> LogEntry:
    spans = [
        Span(rolls.log(partition), Position(123456, 7890), Position(123456, 9876), 1_986_000)
        for partition in range(count)
    ]
    return LogEntry(writer=WRITER, roll=1, at="now", files=(DataFile("", 0, 1, 1),), spans=tuple(spans))


@cache
def long_entry() -> bytes:
    return many_partitions(3000).encode()


def test_a_thousand_partitions_are_compact() -> None:
    data = many_partitions(1000).encode()
    assert len(data) < 50_000
    assert data.startswith(b"{")


def test_long_entries_are_packed_inside_and_say_so_by_their_first_bytes() -> None:
    entry = many_partitions(3000)
    data = entry.encode()
    assert data[:2] == b"\x1f\x8b"
    assert len(data) < 40_000
    assert data[4:8] == bytes(4), "no time in it: the same value, the same bytes"
    assert in_order(LogEntry.decode(data, "x")) == in_order(entry)
    assert json.loads(gzip.decompress(data))["writer"] == WRITER


def test_packing_begins_above_64_kib() -> None:
    assert pack("a" * 65_533) == b'"' + b"a" * 65_533 + b'"\n'
    assert pack("a" * 65_534)[:2] == b"\x1f\x8b"
    assert unpack(pack("a" * 65_534)) == "a" * 65_534


@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_damaged_entry_is_an_error_that_names_it(at: int, byte: int) -> None:
    data = bytearray(full_entry().encode())
    data[at % len(data)] = byte
    try:
        LogEntry.decode(bytes(data), "log/5.json")
    except DatasetDamagedError as exc:
        assert "log/5.json is damaged" in str(exc)  # noqa: PT017 - some bytes do not matter


@given(st.integers(0, 2000))
def test_a_cut_off_entry_is_an_error(size: int) -> None:
    for data in (full_entry().encode(), long_entry()):
        with pytest.raises(DatasetDamagedError):
            LogEntry.decode(data[: size % (len(data) - 1)], "x")


def test_a_later_format_is_no_damage() -> None:
    value = json.loads(LogEntry(writer=WRITER, roll=1, at="now").encode()) | {"format": 2, "files": "in another way"}
    with pytest.raises(DatasetMismatchError, match="x has format 2, because a later version of fastwire writes"):
        LogEntry.decode(json.dumps(value).encode(), "x")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 0}, "there is no format 0"),
        ({"format": "2"}, "'2' is not a count"),
        ({"writer": "../../../etc"}, "is not the name of a writer"),
        ({"files": {"../": [[0, 1, 1]]}}, "is not a folder of a dataset"),
        ({"files": {"/etc/": [[0, 1, 1]]}}, "is not a folder of a dataset"),
        ({"files": {"a": [[0, 1, 1]]}}, "is not a folder of a dataset"),
        ({"files": {"": [[0, -1, 1]]}}, "is not a count"),
        ({"filtered": "3"}, "is not a count"),
        ({"spans": {"pulsar": {"c": {"t": {"0": {"0": [["1:1", 5, 1]]}}}}}}, "is not a text"),
        ({"spans": {"rabbit": {}}}, "unknown system"),
        ({"replaying": {"url": "a"}}, "ends"),
        ({"replaying": {"url": "a", "topic": "t", "sender": "s", "ends": {}, "letters": [[1, 2]]}}, "positional"),
        ({"replaying": {"url": "a", "topic": "t", "sender": 7, "ends": {}, "letters": []}}, "is not a text"),
        ({"replaying": {"url": "a", "topic": "t", "sender": "s", "ends": 5, "letters": []}}, "are not positions"),
        ({"closes": -1}, "is not a count"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, object], text: str) -> None:
    value = json.loads(LogEntry(writer=WRITER, roll=1, at="now").encode()) | change
    with pytest.raises(DatasetDamagedError, match=text):
        LogEntry.decode(json.dumps(value).encode(), "x")


def test_folding() -> None:
    coverage = Coverage()
    LogEntry(writer=WRITER, roll=1, at="", spans=(rolls.begun(), rolls.span(-1, 3))).fold_into(coverage)
    shared = LogEntry(
        writer=WRITER,
        roll=2,
        at="",
        spans=(rolls.span(5, 6), rolls.span(8, 9)),
        floors=((rolls.log(), Position(7, 7)),),
    )
    shared.fold_into(coverage)
    assert rolls.log() in coverage
    assert coverage.intervals(rolls.log()) == (
        (Position(-1, -1), Position(7, 7)),
        (Position(7, 8), Position(7, 9)),
    )
    with pytest.raises(OverlapError):
        shared.fold_into(coverage)
    kafka = Log("kafka", "id", "orders", "3")
    LogEntry(writer=WRITER, roll=3, at="", spans=(Span(kafka, Position(0, -1), Position(5, -1), 5),)).fold_into(
        coverage
    )
    with pytest.raises(UndeclaredGapError):
        LogEntry(writer=WRITER, roll=4, at="", spans=(Span(kafka, Position(6, -1), Position(7, -1), 1),)).fold_into(
            coverage
        )


# --- checkpoints


def some_checkpoint(number: int) -> Checkpoint:
    state = Checkpoint()
    for at in range(number):
        state.fold(
            LogEntry(writer=WRITER, roll=at, at="", files=(DataFile("", 0, 1, 9),), spans=(rolls.span(at, at + 1),))
        )
    return state


def test_a_checkpoint_is_a_function_of_the_log() -> None:
    state = some_checkpoint(5)
    assert (state.number, state.rows, state.files, state.nbytes) == (5, 5, 5, 45)
    assert Checkpoint.decode(state.encode(), 5) == state
    assert state.encode() == some_checkpoint(5).encode()
    copy = state.copy()
    copy.fold(LogEntry(writer=WRITER, roll=9, at="", spans=(rolls.span(5, 6),)))
    assert state == some_checkpoint(5)


def test_a_checkpoint_that_is_not_one() -> None:
    data = some_checkpoint(5).encode()
    for wrong, number in ((data, 6), (data[:-9], 5), (b"", 5), (b"[]", 5), (b'{"format":1,"number":5}', 5)):
        with pytest.raises(ValueError, match=r".+"):
            Checkpoint.decode(wrong, number)


def test_the_newest_sound_checkpoint_is_taken(tmp_path: Path) -> None:
    disk = Disk()
    storage = FolderStorage(str(tmp_path), disk, Patience(disk))
    assert newest_checkpoint(storage) == Checkpoint()
    folder = tmp_path / "_fastwire/checkpoint"
    folder.mkdir(parents=True)
    (folder / "000000000002.json").write_bytes(some_checkpoint(2).encode())
    (folder / "000000000004.json").write_bytes(some_checkpoint(4).encode())
    (folder / "000000000006.json").write_bytes(b"\x1f\x8bdamaged")
    (folder / "notes.txt").write_text("")
    assert newest_checkpoint(storage) == some_checkpoint(4)


def test_spans_that_leave_held_parts_out_keep_saying_so() -> None:
    log = Log("pulsar", "c", "persistent://public/default/t", "-1", "0")
    spans = (
        Span(log, Position(3, 5), Position(3, 6), 1, None, Position(3, 4)),
        Span(log, Position(3, 6), Position(3, 7), 1, Gap(Position(4, 0), "why"), Position(3, 2)),
        Span(log, Position(4, 0), Position(4, 1), 1, Gap(Position(4, 9), "why")),
    )
    entry = LogEntry(writer="0123456789abcdef", roll=1, at="2026-01-01T00:00:00.000Z", spans=spans)
    assert LogEntry.decode(entry.encode(), "it").spans == spans


# --- witnesses: what the last atom that has landed is known by

TUBEMQ = Log("tubemq", "c", "t", "1:0")
LARGEST = (1 << 63) - 1


def witnessed(start: int, end: int, witness: int | None, *, gap: Gap | None = None) -> LogEntry:
    span = Span(TUBEMQ, Position(0, start), Position(0, end), end - start, gap, witness=witness)
    return LogEntry(writer=WRITER, roll=1, at="", spans=(span,))


def again(entry: LogEntry) -> LogEntry:
    return LogEntry.decode(entry.encode(), "x")


@pytest.mark.parametrize("witness", [1, LARGEST, -LARGEST - 1])
def test_what_the_last_atom_is_known_by_comes_back(witness: int) -> None:
    state = Checkpoint()
    state.fold(again(witnessed(0, 5, 7)))
    state.fold(again(witnessed(5, 9, witness)))
    assert state.coverage.witness(TUBEMQ) == witness
    read = Checkpoint.decode(state.encode(), 2)
    assert read.coverage.witness(TUBEMQ) == witness
    assert read.encode() == state.encode()
    assert read.copy().coverage.witness(TUBEMQ) == witness


def test_only_the_last_span_of_a_log_says_it() -> None:
    first, second = (witnessed(*ends, witness).spans[0] for ends, witness in (((0, 5), 7), ((5, 9), 8)))
    entry = LogEntry(writer=WRITER, roll=1, at="", spans=(first, second, rolls.span(0, 5)))
    spans = [span for span in again(entry).spans if span.log == TUBEMQ]
    assert [span.witness for span in spans] == [None, 8]
    assert json.loads(unpack_to_json(entry))["witnesses"] == {"tubemq": {"c": {"t": {"0": {"1:0": "8"}}}}}


def unpack_to_json(entry: LogEntry) -> str:
    return json.dumps(unpack(entry.encode()))


def test_another_end_has_another_witness_or_none() -> None:
    coverage = Coverage()
    witnessed(0, 5, 7).fold_into(coverage)
    LogEntry(writer=WRITER, roll=1, at="", spans=(Span(TUBEMQ, Position(0, 5), Position(0, 5), 0),)).fold_into(coverage)
    assert coverage.witness(TUBEMQ) == 7  # an empty span ends where the last one has
    witnessed(5, 6, None).fold_into(coverage)
    assert coverage.witness(TUBEMQ) is None
    witnessed(6, 7, 3).fold_into(coverage)
    witnessed(7, 7, 3, gap=Gap(Position(280, 0), "retention")).fold_into(coverage)
    assert coverage.witness(TUBEMQ) is None  # nothing of what lies before the far side of a gap has landed


def test_entries_and_checkpoints_of_older_versions_have_none() -> None:
    value = unpack(again(witnessed(0, 5, 7)).encode())
    del value["witnesses"]
    assert LogEntry.decode(pack(value), "x").spans[0].witness is None
    state = Checkpoint()
    state.fold(witnessed(0, 5, 7))
    value = unpack(state.encode())
    del value["witnesses"]
    assert Checkpoint.decode(pack(value), 1).coverage.witness(TUBEMQ) is None


@pytest.mark.parametrize("value", [{"tubemq": 1}, {"tubemq": {"c": {"t": {"0": {"1:0": 8}}}}}])
def test_witnesses_that_are_none_are_damage(value: object) -> None:
    entry = unpack(witnessed(0, 5, 7).encode()) | {"witnesses": value}
    with pytest.raises(DatasetDamagedError):
        LogEntry.decode(pack(entry), "x")
