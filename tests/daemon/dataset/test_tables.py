"""Datasets that are published in a Delta table: each file once, whoever publishes it, and wherever a writer stops."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from fastwire.decode.evolution import Column
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.level import hive_directory
from fastwire_daemon.dataset.place import storage_at
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.steps import STEPS
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.tableformat import Seen, TableRacedError
from fastwire_daemon.dataset.tables.delta import DeltaLog
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetMismatchError
from tests.support import icebergs, rolls, tables

_COMMIT = STEPS[STEPS.index("files-finished") : STEPS.index("committed") + 1]
_TYPES = (Column("n", "i", True),)


def opened(path: Path, **changes: object) -> DatasetWriter:
    writer = tables.writer(path, **changes)  # type: ignore[arg-type]
    writer.open()
    return writer


def land_all(writer: DatasetWriter, times: int) -> None:
    """Commit so many files with five numbers each."""
    for at in range(times):
        tables.land(writer, at * 5 - 1, at * 5 + 4)


def commits(path: Path) -> list[list[dict[str, dict[str, object]]]]:
    """The actions of each version of the table."""
    files = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def test_the_files_of_a_commit_are_in_the_table(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.commit([], [rolls.begun()])
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    writer.close()
    tables.assert_landed(tmp_path, range(10))
    assert verify(tmp_path).problems == []
    created, *added = commits(tmp_path)
    assert [action for action in created if "metaData" in action]
    assert [[next(iter(action)) for action in commit] for commit in added] == [["commitInfo", "add", "txn"]] * 2
    assert [action["txn"]["version"] for commit in added for action in commit if "txn" in action] == [2, 3]


def test_statistics_and_partitions_are_in_the_table(tmp_path: Path) -> None:
    writer = opened(tmp_path, split="topic", partition_by="hour", columns=("value", "offset", "timestamp"))
    time = pa.array([1_767_225_600_000_001, 1_767_225_600_000_002], pa.timestamp("us", "UTC"))
    name = "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders/dt=2026-01-01/hh=07/"
    nowhere = "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders/dt=__HIVE_DEFAULT_PARTITION__/hh=07/"
    files = [tables.stage(writer, [0, 1], name, timestamp=time), tables.stage(writer, [2, 3], nowhere, timestamp=time)]
    writer.commit(files, [rolls.span(-1, 3)])
    writer.close()
    tables.assert_landed(tmp_path, range(4))
    found = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).sort_by("path").to_pylist()
    assert [each["num_records"] for each in found] == [2, 2]
    assert [(each["min.offset"], each["max.offset"], each["null_count.offset"]) for each in found] == [
        (0, 1, 0),
        (2, 3, 0),
    ]
    assert [(str(each["min.timestamp"]), str(each["max.timestamp"])) for each in found] == [
        ("2026-01-01 00:00:00+00:00", "2026-01-01 00:00:00.001000+00:00")
    ] * 2
    assert [(each["partition.t"], str(each["partition.dt"]), each["partition.hh"]) for each in found] == [
        ("persistent://public/default/orders", "2026-01-01", 7),
        ("persistent://public/default/orders", "None", 7),
    ]
    rows = DeltaTable(tmp_path).to_pyarrow_table(filters=[("hh", "=", 7), ("offset", ">", 2)])
    assert rows["timestamp"].to_pylist()[0].isoformat() == "2026-01-01T00:00:00.000002+00:00"


@pytest.mark.parametrize("step", [*_COMMIT, "table-created", "table-ready", "table-committed"])
def test_what_a_stopped_writer_has_left_is_published_once(tmp_path: Path, step: str) -> None:
    writer = tables.writer(tmp_path, rolls.stop_at(step, 1 if step == "table-created" else 2))
    writer.open()
    with pytest.raises(rolls.Stopped):
        land_all(writer, 3)
    other = tables.writer(tmp_path)
    end = rolls.end_of(other.open())
    tables.assert_landed(tmp_path, range(end + 1))
    tables.land(other, end, 20)
    other.close()
    tables.assert_landed(tmp_path, range(21))


def test_writers_that_publish_the_same_entry_add_its_files_once(tmp_path: Path) -> None:
    """One stands before its commit of the table while another finds the entry, and publishes it."""
    others: list[DatasetWriter] = []

    def reached(step: str) -> None:
        if step == "table-ready" and not others:
            others.append(opened(tmp_path))
            tables.assert_landed(tmp_path, range(5))

    writer = tables.writer(tmp_path, reached)
    writer.open()
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    others[0].refresh()
    tables.land(others[0], 9, 14)
    tables.assert_landed(tmp_path, range(15))


def test_compaction_between_look_and_commit_does_not_double_a_file(tmp_path: Path) -> None:
    """A file that was added and then rewritten is not there under its name, and yet must not be added again."""
    others: list[DatasetWriter] = []

    def reached(step: str) -> None:
        if step == "table-ready" and not others and (tmp_path / "_delta_log/00000000000000000002.json").exists():
            others.append(opened(tmp_path))
            table = DeltaTable(tmp_path)
            assert table.optimize.compact()["numFilesRemoved"] == 3
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    writer = tables.writer(tmp_path, reached)
    writer.open()
    land_all(writer, 3)
    assert others
    tables.land(writer, 14, 19)
    tables.assert_landed(tmp_path, range(20))


def test_a_rewritten_file_is_not_added_again_by_the_next_start(tmp_path: Path) -> None:
    writer = tables.writer(tmp_path, rolls.stop_at("table-committed", 3))
    writer.open()
    with pytest.raises(rolls.Stopped):
        land_all(writer, 3)
    table = DeltaTable(tmp_path)
    assert table.optimize.compact()["numFilesRemoved"] == 3
    other = opened(tmp_path)
    tables.assert_landed(tmp_path, range(15))
    tables.land(other, 14, 19)
    tables.assert_landed(tmp_path, range(20))


def test_a_commit_from_a_stale_look_is_refused(tmp_path: Path) -> None:
    """The library would take the same transaction again, if it repeated the commit on its own."""
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    owner = json.loads((tmp_path / "_fastwire/dataset.json").read_text())["id"]
    stale = DeltaLog(storage_at(tmp_path), owner)
    stale.look()
    tables.land(writer, 4, 9)
    with pytest.raises(TableRacedError):
        stale.add([], 2, 2)
    stale.look()
    DeltaTable(tmp_path).optimize.compact()
    with pytest.raises(TableRacedError):
        stale.add([], 3, 3)


def test_several_entries_are_one_commit_of_the_table(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    log = tmp_path / "_delta_log"
    log.rename(tmp_path / "_away")
    for at in range(1, 5):
        tables.land(writer, at * 5 - 1, at * 5 + 4)
    assert "is gone" in writer.stopped
    (tmp_path / "_away").rename(log)
    writer.refresh()
    assert writer.stopped == ""
    assert [[action["txn"]["version"] for action in commit if "txn" in action] for commit in commits(tmp_path)] == [
        [],
        [1],
        [5],
    ]
    tables.assert_landed(tmp_path, range(25))


@pytest.mark.parametrize("again", ["the same writer", "a new one"])
def test_a_table_that_takes_no_files_stops_publishing_and_not_landing(tmp_path: Path, again: str) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    table = DeltaTable(tmp_path)
    table.alter.add_constraint({"positive": "offset >= 0"})
    writer.checkpoint_every = 2
    for at in range(1, 4):
        assert rolls.end_of(tables.land(writer, at * 5 - 1, at * 5 + 4)) == at * 5 + 4
    assert "features for which fastwire cannot write" in writer.stopped
    assert tables.numbers(tmp_path) == list(range(5))
    assert not list((tmp_path / "_fastwire").glob("checkpoint/*"))
    table = DeltaTable(tmp_path)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    if again == "a new one":
        writer.close()
        writer = opened(tmp_path)
        assert writer.stopped and rolls.entries(tmp_path) == 4, "nothing is fenced that is not published"
        tables.land(writer, 19, 24)
        assert writer.stopped
    # Its owner takes it back, which the library cannot.
    for version in (2, *range(3, table.version() + 1)):
        (tmp_path / f"_delta_log/{version:020d}.json").unlink(missing_ok=True)
    writer.close()
    writer = opened(tmp_path)
    assert writer.stopped == ""
    end = rolls.end_of(writer.coverage)
    assert end == (24 if again == "a new one" else 19)
    tables.assert_landed(tmp_path, range(end + 1))
    writer.close()
    assert rolls.staging(tmp_path) == []


def test_a_table_of_others_gets_no_files(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"value": [b"x"], "offset": [1]}))
    writer = opened(tmp_path)
    assert rolls.end_of(tables.land(writer, -1, 4)) == 4
    assert "was not made by fastwire" in writer.stopped
    assert tables.numbers(tmp_path) == [1]
    shutil.rmtree(tmp_path / "_delta_log")
    tables.land(writer, 4, 9)
    tables.assert_landed(tmp_path, range(10))


def test_a_table_that_does_not_note_what_it_was_given_gets_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    look = DeltaLog.look

    def of_old(log: DeltaLog) -> Seen | None:
        seen = look(log)
        return seen and replace(seen, upto=1)

    monkeypatch.setattr(DeltaLog, "look", of_old)
    assert rolls.end_of(tables.land(writer, 4, 9)) == 9
    assert "and those up to 2 were in it" in writer.stopped
    monkeypatch.undo()
    writer.close()
    opened(tmp_path).close()
    tables.assert_landed(tmp_path, range(10))


def test_a_changed_column_stops_publishing(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    changed = pa.table({"value": [b"x"], "offset": ["text"]})
    write_deltalake(tmp_path, changed, mode="overwrite", schema_mode="overwrite")
    tables.land(writer, 4, 9)
    assert "the column offset of the table is string, and the files have long" in writer.stopped


def test_columns_of_others_are_welcome(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    DeltaTable(tmp_path).alter.add_columns([Field("theirs", PrimitiveType("string"))])
    tables.land(writer, 4, 9)
    tables.assert_landed(tmp_path, range(10))


def test_a_table_that_forgets_transactions_gets_no_files(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    tables.land(writer, 4, 9)
    assert "setTransactionRetentionDuration" in writer.stopped


@pytest.mark.parametrize("step", ["", "table-evolved"])
def test_new_columns_of_values_are_added_to_the_table(tmp_path: Path, step: str) -> None:
    def writer(step: str) -> DatasetWriter:
        stop = rolls.stop_at(step) if step else lambda step: None
        made = tables.writer(tmp_path, stop, columns=("n", "_offset"), types=_TYPES)
        made.open()
        return made

    first = writer(step)

    def stage(writer: DatasetWriter, at: int, **more: pa.Array) -> object:
        renamed = tables.stage(writer, [at], _offset=pa.array([at]), n=pa.array([at], pa.int32()), **more)
        return renamed

    first.commit([stage(first, 0)], [rolls.span(-1, 0)], types=_TYPES)  # type: ignore[list-item]
    wider = (*_TYPES, Column("city", "u", True), Column("price", "d:9,2", True))
    city = {"city": pa.array(["x"]), "price": pa.array([1], pa.decimal128(9, 2))}
    if step:
        with pytest.raises(rolls.Stopped):
            first.commit([stage(first, 1, **city)], [rolls.span(0, 1)], types=wider)  # type: ignore[list-item]
    else:
        first.commit([stage(first, 1, **city)], [rolls.span(0, 1)], types=wider)  # type: ignore[list-item]
    other = writer("")
    assert other.stopped == ""
    rows = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["n"], row["city"], row["price"]) for row in rows] == [(0, None, None), (1, "x", 1)]


def test_a_column_cannot_become_wider(tmp_path: Path) -> None:
    opened(tmp_path, columns=("n",), types=_TYPES).commit([], [rolls.begun()], types=_TYPES)
    with pytest.raises(DatasetMismatchError, match="cannot change the type of its column n from integer to long"):
        opened(tmp_path, columns=("n",), types=(Column("n", "l", True),))


def test_a_table_is_no_plain_dataset(tmp_path: Path) -> None:
    opened(tmp_path).commit([], [rolls.begun()])
    with pytest.raises(DatasetMismatchError, match="the table format of the dataset: delta; configured: none"):
        opened(tmp_path, table="")


def test_vacuum_keeps_away_from_the_log_and_from_staged_files(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    land_all(writer, 3)
    staged = tables.stage(writer, range(15, 20))
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    kept = sorted(path for path in (tmp_path / "_fastwire").rglob("*") if path.is_file())
    planned = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
    assert len(planned) == 3 and not [name for name in planned if "_fastwire" in name]
    assert sorted(table.vacuum(0, dry_run=False, enforce_retention_duration=False)) == sorted(planned)
    assert sorted(path for path in (tmp_path / "_fastwire").rglob("*") if path.is_file()) == kept
    writer.commit([staged], [rolls.span(14, 19)])
    writer.close()
    tables.assert_landed(tmp_path, range(20))


def test_the_table_of_a_log_that_has_lost_its_end_is_refused(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    land_all(writer, 3)
    writer.close()
    (tmp_path / "_fastwire/log/000000000/000000000003.json").unlink()
    shutil.rmtree(tmp_path / "_fastwire/newest")
    with pytest.raises(DatasetDamagedError, match="has files up to entry 3: the end of the log is lost"):
        opened(tmp_path)


def test_a_file_that_is_gone_before_it_was_in_the_table_stops_publishing(tmp_path: Path) -> None:
    writer = tables.writer(tmp_path, rolls.stop_at("table-ready", 2))
    writer.open()
    with pytest.raises(rolls.Stopped):
        land_all(writer, 2)
    file = tmp_path / "000000000002-0.parquet"
    file.rename(tmp_path / "_backup")
    other = opened(tmp_path)
    assert "is missing or has another size" in other.stopped
    (tmp_path / "_backup").rename(file)
    other.refresh()
    assert other.stopped == ""
    tables.assert_landed(tmp_path, range(10))


def test_an_empty_version_of_the_table_is_filled_by_the_next(tmp_path: Path) -> None:
    """A power cut may leave the name of a version without its content, because the library does not sync it."""
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    writer.close()
    (tmp_path / "_delta_log/00000000000000000002.json").write_bytes(b"")
    writer = opened(tmp_path)
    assert writer.stopped == ""
    tables.assert_landed(tmp_path, range(10))


def test_versions_of_the_table_are_synced(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(Disk):
        def open(self, path: str) -> int:
            synced.append(path.rpartition("/")[2])
            return super().open(path)

    writer = opened(tmp_path, medium=Watched())
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    assert [name for name in synced if len(name) == 25] == [f"{version:020d}.json" for version in range(3)]


def test_files_of_a_table_do_not_expire(tmp_path: Path) -> None:
    tables.land(opened(tmp_path), -1, 4)
    with pytest.raises(DatasetMismatchError, match="is a table: delete rows by DELETE"):
        expire(tmp_path, 0)


def test_a_transaction_of_others_is_not_ours(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    table = DeltaTable(tmp_path)
    data = pa.table({"value": [b"x"], "offset": [99]})
    write_deltalake(
        table, data, mode="append", commit_properties=CommitProperties(app_transactions=[Transaction("another", 9)])
    )
    tables.land(writer, 4, 9)
    tables.assert_landed(tmp_path, [*range(10), 99])


def test_verify_compares_log_and_table(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    land_all(writer, 3)
    writer.close()
    report = verify(tmp_path, strict=True)
    assert report.problems == [] and report.table is not None
    assert "the table has all 15 rows of log entries 1 to 3, once" in report.proven
    assert (report.table.version, report.table.upto, report.table.files, report.table.rows) == (3, 3, 3, 15)
    table = DeltaTable(tmp_path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    report = verify(tmp_path, strict=True)
    assert report.problems == [] and report.table is not None and report.table.rewritten == 3
    assert report.removed == [] and report.pending == []
    table.delete("offset < 3")
    report = verify(tmp_path)
    assert report.problems == [] and "3 rows were deleted from the table on purpose" in report.trusted
    (problem,) = verify(tmp_path, strict=True).problems
    assert (problem.kind, problem.text) == ("table", "3 rows were deleted from it")
    write_deltalake(table, pa.table({"value": [b"x"] * 4, "offset": [0, 1, 2, 3]}), mode="append")
    (problem,) = verify(tmp_path).problems
    assert problem.kind == "table" and "has 1 row more than have landed" in problem.text


def test_verify_finds_a_file_of_the_table_that_is_gone(tmp_path: Path) -> None:
    tables.land(opened(tmp_path), -1, 4)
    (tmp_path / "000000000001-0.parquet").unlink()
    (problem,) = verify(tmp_path).problems
    assert (problem.kind, problem.where) == ("missing", "000000000001-0.parquet")


@pytest.mark.parametrize("value", ["Bern", "New York", "Zürich", "a%2Fb"])
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_verify_finds_a_file_that_is_gone_from_any_folder(tmp_path: Path, form: str, value: str) -> None:
    """The log of Delta has the names as parts of URLs, encoded once more."""
    more = {"catalog": icebergs.catalog(tmp_path)} if form == "iceberg" else {}
    level = Column("city", "u", True)
    writer = opened(tmp_path, table=form, levels=("city",), level_types=(level,), **more)
    directories = [hive_directory([("city", each)], table=True) for each in (value, "other")]
    files = [tables.stage(writer, [number], directory) for number, directory in enumerate(directories)]
    writer.commit(files, [rolls.span(-1, 1)])
    writer.close()
    report = verify(tmp_path, strict=True)
    assert report.problems == [] and report.table is not None and report.table.rewritten == 0
    name = f"{directories[0]}000000000001-0.parquet"
    (tmp_path / name).unlink()
    for strict, deep in ((False, False), (True, False), (False, True)):
        (problem,) = verify(tmp_path, strict=strict, deep=deep).problems
        assert (problem.kind, problem.where) == ("missing", name)


def test_verify_says_what_is_not_in_the_table_yet(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    tables.land(writer, -1, 4)
    DeltaTable(tmp_path).alter.add_constraint({"positive": "offset >= 0"})
    tables.land(writer, 4, 9)
    report = verify(tmp_path)
    assert report.pending == ["000000000002-0.parquet"]
    assert [problem.kind for problem in report.problems] == ["table"]
