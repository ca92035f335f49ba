"""Datasets that are published in an Iceberg table: each file once, wherever a writer stops, and with several."""

import json
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.types import LongType, NestedField, StringType

from fastwire.decode.evolution import Column
from fastwire_daemon.dataset.place import storage_at
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.steps import STEPS
from fastwire_daemon.dataset.tableformat import TableLateError, TableRacedError, TableStoppedError
from fastwire_daemon.dataset.tables import iceberg, icebergprocess
from fastwire_daemon.dataset.tables import publication as tablepublication
from fastwire_daemon.dataset.tables.iceberg import IcebergTable
from fastwire_daemon.dataset.tables.icebergprocess import Client, Worker, worker_of
from fastwire_daemon.dataset.tables.icebergworker import NO_CATALOG, _Worker
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetMismatchError
from fastwire_daemon.runtime.outside import waiting
from tests.support import icebergs, rolls, tables
from tests.support.answering import answering
from tests.support.waiting import eventually

_COMMIT = STEPS[STEPS.index("entry-linked") : STEPS.index("committed") + 1]
_TYPES = (Column("n", "i", True),)


def land_all(writer: DatasetWriter, times: int) -> None:
    """Commit so many files with five numbers each."""
    for at in range(times):
        tables.land(writer, at * 5 - 1, at * 5 + 4)


def table_of(path: Path) -> IcebergTable:
    """The table as another writer of the dataset has it."""
    owner = json.loads((path / "_fastwire/dataset.json").read_text())["id"]
    return IcebergTable(storage_at(path), owner, icebergs.catalog(path))


def noted(path: Path) -> list[str | None]:
    """The log entries of each snapshot of the table."""
    return [each.summary["fastwire.entries"] for each in icebergs.loaded(path).snapshots() if each.summary]


def worker(path: Path) -> Worker:
    """The process that commits."""
    return worker_of({name: value for name, value in icebergs.catalog(path).items() if name != "table"})


def answer_comes(path: Path) -> None:
    """Wait until the process has answered the request that is under way."""
    eventually(lambda: not worker(path)._under_way, "an answer of the process")


def process(path: Path) -> int:
    """The number of the process that commits."""
    pid = worker(path).pid
    assert pid is not None
    return pid


def test_the_files_of_a_commit_are_in_the_table(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    writer.commit([], [rolls.begun()])
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    writer.close()
    icebergs.assert_landed(tmp_path, range(10))
    report = verify(tmp_path, strict=True)
    assert report.problems == [] and report.table is not None
    assert "the table has all 10 rows of log entries 1 to 3, once" in report.proven
    assert (report.table.format, report.table.upto, report.table.files) == ("Iceberg", 3, 2)
    assert noted(tmp_path) == ["2-2", "3-3"]
    assert icebergs.loaded(tmp_path).properties["fastwire.upto"] == "3"


def test_statistics_and_partitions_are_in_the_table(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path, split="topic", partition_by="hour", columns=("value", "offset", "timestamp"))
    time = pa.array([1_767_225_600_000_001, 1_767_225_600_000_002], pa.timestamp("us", "UTC"))
    name = "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders/dt=2026-01-01/hh=07/"
    nowhere = "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders/dt=__HIVE_DEFAULT_PARTITION__/hh=07/"
    files = [tables.stage(writer, [0, 1], name, timestamp=time), tables.stage(writer, [2, 3], nowhere, timestamp=time)]
    writer.commit(files, [rolls.span(-1, 3)])
    assert writer.stopped == ""
    icebergs.assert_landed(tmp_path, range(4))
    table = icebergs.loaded(tmp_path)
    found = sorted(table.inspect.files().to_pylist(), key=lambda each: str(each["file_path"]))
    bounds = [each["readable_metrics"]["offset"] for each in found]
    assert [(each["lower_bound"], each["upper_bound"], each["null_value_count"]) for each in bounds] == [
        (0, 1, 0),
        (2, 3, 0),
    ]
    rows = table.scan(row_filter="hh = 7 and dt is null and offset > 2").to_arrow().to_pylist()
    assert [(row["offset"], row["t"], row["dt"]) for row in rows] == [(3, "persistent://public/default/orders", None)]
    by_duckdb = tables.rows_by_duckdb(table.metadata_location, '"offset", t, hh, dt::VARCHAR', "iceberg")
    assert sorted(by_duckdb)[0] == (0, "persistent://public/default/orders", 7, "2026-01-01")


@pytest.mark.parametrize("step", [*_COMMIT, "table-created", "table-ready", "table-committed"])
def test_what_a_stopped_writer_has_left_is_published_once(tmp_path: Path, step: str) -> None:
    writer = icebergs.opened(tmp_path, rolls.stop_at(step, 1 if step == "table-created" else 2))
    with pytest.raises(rolls.Stopped):
        land_all(writer, 3)
    other = icebergs.writer(tmp_path)
    end = rolls.end_of(other.open())
    assert icebergs.numbers(tmp_path) == list(range(end + 1))
    tables.land(other, end, 20)
    other.close()
    assert icebergs.numbers(tmp_path) == list(range(21))


def test_writers_that_publish_the_same_entry_add_its_files_once(tmp_path: Path) -> None:
    """One stands before its commit of the table while another finds the entry, and publishes it."""
    others: list[DatasetWriter] = []

    def reached(step: str) -> None:
        if step == "table-ready" and not others:
            others.append(icebergs.opened(tmp_path))
            assert icebergs.numbers(tmp_path) == list(range(5))

    writer = icebergs.opened(tmp_path, reached)
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    others[0].refresh()
    tables.land(others[0], 9, 14)
    icebergs.assert_landed(tmp_path, range(15))
    left = {each.name for each in (tmp_path / "metadata").glob("*.avro")}
    snapshots = icebergs.loaded(tmp_path).snapshots()
    assert len([name for name in left if name.startswith("snap-")]) == len(snapshots), "lost commits are tidied up"


def test_a_commit_from_a_stale_look_is_refused(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    stale = table_of(tmp_path)
    with pytest.raises(TableRacedError):
        stale.add([], 1, 1)
    stale.look()
    tables.land(writer, 4, 9)
    with pytest.raises(TableRacedError):
        stale.add([], 2, 2)
    with pytest.raises(TableRacedError):
        stale.create([], [])
    icebergs.assert_landed(tmp_path, range(10))


@pytest.mark.parametrize("step", ["table-ready", "table-committed"])
def test_the_process_is_started_again_after_its_death(tmp_path: Path, step: str) -> None:
    dead: list[int] = []

    def reached(at: str) -> None:
        if at == step and not dead:
            running = worker(tmp_path)._process
            assert running is not None
            dead.append(running.pid)
            running.kill()
            running.wait()

    writer = icebergs.opened(tmp_path, reached)
    tables.land(writer, -1, 4)
    assert writer.stopped == "" and process(tmp_path) not in dead
    tables.land(writer, 4, 9)
    icebergs.assert_landed(tmp_path, range(10))


def test_a_catalog_that_is_away_stops_publishing_and_not_landing(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    data, away = tmp_path / "_catalog.db", tmp_path / "_away.db"
    data.rename(away)
    data.mkdir()
    writer.close()
    writer = icebergs.opened(tmp_path)
    for at in range(1, 4):
        assert rolls.end_of(tables.land(writer, at * 5 - 1, at * 5 + 4)) == at * 5 + 4
    assert "the Iceberg table shop.orders: " in writer.stopped
    data.rmdir()
    away.rename(data)
    assert verify(tmp_path).pending == [f"{number:012d}-0.parquet" for number in (2, 3, 4)]
    writer.refresh()
    assert writer.stopped == ""
    icebergs.assert_landed(tmp_path, range(20))
    assert noted(tmp_path) == ["1-1", "2-4"], "several log entries are one commit of the table"


def test_a_page_is_no_answer_of_a_catalog() -> None:
    page = b"<!DOCTYPE html><title>Sign in</title>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)
    with answering(head + page) as port:
        table: dict[str, Any] = {"type": "rest", "name": "x", "uri": f"http://127.0.0.1:{port}", "table": icebergs.NAME}
        table |= {"root": "/x", "location": "file:///x", "store": {}}
        reply = _Worker().reply(json.dumps({"do": "look", "owner": "", "client": "", "table": table}))
    assert reply == {"stopped": NO_CATALOG}


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a catalog that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_catalog_that_never_answers_holds_up_no_landing(
    tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_HASTY_S", 0.0)
    # A busy machine takes longer for the three commits.
    monkeypatch.setattr(tablepublication, "_TOLD_S", math.inf)
    monkeypatch.setattr(icebergprocess, "ANSWER_S", 3600.0)
    bad = icebergs.writer(
        tmp_path / "bad", catalog={"type": "rest", "name": "bad", "uri": silent, "table": icebergs.NAME}, hasty=True
    )
    good = icebergs.opened(tmp_path / "good")
    bad.open()
    for at in range(3):
        assert rolls.end_of(tables.land(bad, at * 5 - 1, at * 5 + 4)) == at * 5 + 4
        assert bad.publishing and bad.stopped == ""
        tables.land(good, at * 5 - 1, at * 5 + 4)
    icebergs.assert_landed(tmp_path / "good", range(15))
    # The request is told, given up, and tried again by a new process.
    monkeypatch.setattr(tablepublication, "_TOLD_S", 0.0)
    bad.refresh()
    assert "the Iceberg table shop.orders: its catalog has not answered yet" in bad.stopped
    monkeypatch.setattr(icebergprocess, "ANSWER_S", 0.0)
    bad.refresh()
    assert "has not answered within" in bad.stopped and not bad.publishing
    bad.close()
    good.close()


def test_an_answer_that_nothing_waited_for_is_looked_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_HASTY_S", 0.0)
    writer = icebergs.opened(tmp_path, hasty=True)
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    # Each round gets the answer of the one before, and waits for none of its own.
    for _ in range(600):
        assert writer.publishing
        answer_comes(tmp_path)
        writer.refresh()
        if not writer.publishing:
            break
    icebergs.assert_landed(tmp_path, range(10))
    tables.land(writer, 9, 14)
    monkeypatch.setattr(iceberg, "_HASTY_S", 60.0)
    writer.close()
    icebergs.assert_landed(tmp_path, range(15))


def test_what_a_commit_waits_for_is_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    ask = Client.ask

    def observed(self: Client, *arguments: Any) -> Any:
        seen.append(waiting([threading.get_ident()], 0.0))
        return ask(self, *arguments)

    monkeypatch.setattr(Client, "ask", observed)
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    writer.close()
    assert seen and all((text or "").startswith("waits for the catalog of the table ") for text in seen), seen
    assert waiting([threading.get_ident()], 0.0) is None


@pytest.fixture
def asked(silent: str) -> Callable[[Worker, float], None]:
    """A function by which one client more asks a process for a table of a catalog that never answers."""

    def ask(running: Worker, patience_s: float) -> None:
        number = len(clients)
        clients.append(Client(running))
        catalog = {"type": "rest", "name": "bad", "uri": silent, "table": icebergs.NAME}
        place = {"root": f"/{number}", "location": f"file:///{number}", "store": {}}
        until = time.monotonic() + patience_s
        request = {"do": "look", "owner": "", "client": str(number), "table": catalog | place}
        clients[-1].ask(request, until, until)

    clients: list[Client] = []
    return ask


def test_a_table_without_an_answer_holds_up_no_other_of_its_process(
    tmp_path: Path, asked: Callable[[Worker, float], None]
) -> None:
    shared = worker(tmp_path)
    for _ in range(5):
        with pytest.raises(TableLateError, match="its catalog has not answered yet"):
            asked(shared, 0.0)
    writer = icebergs.opened(tmp_path)
    land_all(writer, 3)
    assert writer.stopped == ""
    icebergs.assert_landed(tmp_path, range(15))
    assert len(shared._under_way) == 5


def test_requests_that_were_given_up_end_the_process_when_it_has_no_other_or_many(
    tmp_path: Path, asked: Callable[[Worker, float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = worker(tmp_path)
    with pytest.raises(TableLateError):
        asked(shared, 0.0)
    before = shared.pid
    monkeypatch.setattr(icebergprocess, "ANSWER_S", 0.0)
    for _ in range(icebergprocess._MOST_GIVEN_UP - 1):
        with pytest.raises(TableStoppedError, match="its catalog has not answered within"):
            asked(shared, 0.0)
        assert shared.pid == before, "the first client waits for an answer"
    with pytest.raises(TableStoppedError):
        asked(shared, 0.0)
    assert shared.pid is None
    with pytest.raises(TableStoppedError):
        asked(shared, 0.0)
    assert shared.pid is None, "nothing else was asked"


def test_who_waits_for_a_process_that_dies_is_told_how(tmp_path: Path, asked: Callable[[Worker, float], None]) -> None:
    shared = worker(tmp_path)

    def kill() -> None:
        eventually(lambda: shared._under_way, "a request")
        os.kill(process(tmp_path), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(TableStoppedError, match="the process that commits to it has ended: exit code -9"):
        asked(shared, 60.0)
    killer.join()


def test_each_catalog_has_a_process_up_to_a_limit() -> None:
    workers = [worker_of({"type": "sql", "uri": f"sqlite:///nowhere/{number}"}) for number in range(12)]
    assert len({id(each) for each in workers}) <= icebergprocess.MOST
    assert worker_of({"type": "sql", "uri": "sqlite:///nowhere/3"}) is workers[3]


def test_a_table_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    icebergs.database(tmp_path).rename_table(icebergs.NAME, "shop.other")
    tables.land(writer, 4, 9)
    assert "is gone, or another one" in writer.stopped
    icebergs.database(tmp_path).rename_table("shop.other", icebergs.NAME)
    writer.refresh()
    icebergs.assert_landed(tmp_path, range(10))


def test_a_table_of_others_gets_no_files(tmp_path: Path) -> None:
    database = icebergs.database(tmp_path)
    database.create_namespace("shop")
    schema = Schema(NestedField(1, "offset", LongType(), required=False))
    database.create_table(icebergs.NAME, schema, location=f"file://{tmp_path}/_theirs")
    writer = icebergs.opened(tmp_path)
    assert rolls.end_of(tables.land(writer, -1, 4)) == 4
    assert "was not made by fastwire" in writer.stopped
    assert icebergs.numbers(tmp_path) == []
    database.drop_table(icebergs.NAME)
    tables.land(writer, 4, 9)
    icebergs.assert_landed(tmp_path, range(10))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("rename", "the column offset of the table is gone"),
        ("partition", "the table is partitioned by value now"),
        ("schema.name-mapping.default", "lacks the property schema.name-mapping.default"),
    ],
)
def test_a_changed_table_stops_publishing(tmp_path: Path, change: str, said: str) -> None:
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    table = icebergs.loaded(tmp_path)
    if change == "rename":
        table.update_schema().rename_column("offset", "place").commit()
    elif change == "partition":
        table.update_spec().add_identity("value").commit()
    else:
        table.transaction().remove_properties(change).commit_transaction()
    assert rolls.end_of(tables.land(writer, 4, 9)) == 9
    assert said in writer.stopped
    (problem,) = verify(tmp_path).problems
    assert problem.kind == "table" and said in problem.text


@pytest.mark.parametrize("name", ["py-io-impl", "write.py-location-provider.impl"])
def test_a_table_whose_properties_name_code_gets_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The code is not even loaded, where the process could find it."""
    (tmp_path / "intruder.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'x')\nclass Intruder: pass\n")
    worker(tmp_path).end()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        writer = icebergs.opened(tmp_path)
        tables.land(writer, -1, 4)
    # This process has another module of that name.
    monkeypatch.setitem(sys.modules, "intruder", SimpleNamespace(Intruder=SimpleLocationProvider))
    icebergs.set_properties(icebergs.database(tmp_path), **{name: "intruder.Intruder"})
    assert rolls.end_of(tables.land(writer, 4, 9)) == 9
    assert f"its property {name} names code that this process would load: remove it" in writer.stopped
    assert not (tmp_path / "loaded").exists()
    icebergs.set_properties(icebergs.database(tmp_path), **{name: None})
    tables.land(writer, 9, 14)
    icebergs.assert_landed(tmp_path, range(15))


def test_a_table_that_has_forgotten_what_it_has_gets_no_files(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    writer.close()
    icebergs.loaded(tmp_path).transaction().remove_properties("fastwire.upto").commit_transaction()
    writer = icebergs.opened(tmp_path)
    tables.land(writer, 4, 9)
    assert "its property fastwire.upto is gone" in writer.stopped
    assert icebergs.numbers(tmp_path) == list(range(5))


def test_columns_of_others_are_welcome(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    tables.land(writer, -1, 4)
    icebergs.loaded(tmp_path).update_schema().add_column("theirs", StringType()).commit()
    tables.land(writer, 4, 9)
    icebergs.assert_landed(tmp_path, range(10))


@pytest.mark.parametrize("step", ["", "table-evolved"])
def test_new_columns_of_values_are_added_to_the_table(tmp_path: Path, step: str) -> None:
    fixed: dict[str, Any] = {"columns": ("n", "_offset"), "types": _TYPES}
    first = icebergs.opened(tmp_path, rolls.stop_at(step) if step else lambda step: None, **fixed)

    def stage(at: int, **more: pa.Array) -> object:
        columns = {"n": pa.array([at], pa.int32()), "_offset": pa.array([at]), **more}
        return tables.stage_columns(first, columns)

    first.commit([stage(0)], [rolls.span(-1, 0)], types=_TYPES)  # type: ignore[list-item]
    nested = (Column("item", "+s", True, (Column("id", "l", True), Column("hash", "w:2", True))),)
    wider = (*_TYPES, Column("city", "u", True), Column("price", "d:9,2", True), Column("parts", "+l", True, nested))
    parts = pa.array([[{"id": 7, "hash": b"ab"}]], pa.list_(pa.struct({"id": pa.int64(), "hash": pa.binary(2)})))
    more = {"city": pa.array(["x"]), "price": pa.array([1], pa.decimal128(9, 2)), "parts": parts}
    if step:
        with pytest.raises(rolls.Stopped):
            first.commit([stage(1, **more)], [rolls.span(0, 1)], types=wider)  # type: ignore[list-item]
    else:
        first.commit([stage(1, **more)], [rolls.span(0, 1)], types=wider)  # type: ignore[list-item]
    assert icebergs.opened(tmp_path, **fixed).stopped == ""
    table = icebergs.loaded(tmp_path)
    rows = table.scan().to_arrow().sort_by("n").to_pylist()
    assert [(row["n"], row["city"], row["price"]) for row in rows] == [(0, None, None), (1, "x", 1)]
    assert rows[1]["parts"] == [{"id": 7, "hash": b"ab"}]
    found = tables.rows_by_duckdb(table.metadata_location, "n, city, parts[1].id", "iceberg")
    assert sorted(found) == [(0, None, None), (1, "x", 7)]


def on_branch(path: Path, reached: Callable[[str], None] = lambda step: None) -> DatasetWriter:
    return icebergs.opened(path, reached, catalog=icebergs.catalog(path) | {"branch": "audit"})


def numbers_of(path: Path, name: str) -> list[int]:
    """The numbers on a branch, in ascending order."""
    table = icebergs.loaded(path)
    snapshot = table.snapshot_by_name(name)
    if snapshot is None:
        return []
    found = table.scan(selected_fields=("offset",), snapshot_id=snapshot.snapshot_id).to_arrow()
    return sorted(found["offset"].to_pylist())


def test_files_land_on_a_branch_until_it_is_published_and_again(tmp_path: Path) -> None:
    writer = on_branch(tmp_path)
    tables.land(writer, -1, 4)
    tables.land(writer, 4, 9)
    assert writer.stopped == ""
    assert numbers_of(tmp_path, "audit") == list(range(10)) and numbers_of(tmp_path, "main") == []
    report = verify(tmp_path, strict=True)
    assert report.problems == [] and "the table has all 10 rows of log entries 1 to 2, once" in report.proven
    with icebergs.loaded(tmp_path).manage_snapshots() as manage:
        manage.set_current_snapshot(ref_name="audit").remove_branch("audit")
    assert numbers_of(tmp_path, "main") == list(range(10)) and numbers_of(tmp_path, "audit") == []
    assert verify(tmp_path, strict=True).problems == []
    tables.land(writer, 9, 14)
    tables.land(writer, 14, 19)
    assert writer.stopped == ""
    assert numbers_of(tmp_path, "audit") == list(range(20)) and numbers_of(tmp_path, "main") == list(range(10))
    assert verify(tmp_path, strict=True).problems == []
    with pytest.raises(DatasetMismatchError, match="the branch of the dataset: audit; configured: main"):
        icebergs.opened(tmp_path)


@pytest.mark.parametrize("step", ["table-ready", "table-committed"])
def test_writers_on_a_branch_add_the_files_of_an_entry_once(tmp_path: Path, step: str) -> None:
    """One stops around its commit, also where the branch has to be made; others write main meanwhile."""
    first = on_branch(tmp_path)
    tables.land(first, -1, 4)
    first.close()
    with icebergs.loaded(tmp_path).manage_snapshots() as manage:
        manage.set_current_snapshot(ref_name="audit").remove_branch("audit")
    stopped = on_branch(tmp_path, rolls.stop_at(step, 1))
    with pytest.raises(rolls.Stopped):
        tables.land(stopped, 4, 9)
    icebergs.loaded(tmp_path).append(pa.table({"value": [b"x"], "offset": [100]}))
    other = on_branch(tmp_path)
    tables.land(other, 9, 14)
    assert other.stopped == ""
    wanted = [*range(15), *([100] if step == "table-ready" else [])]
    assert numbers_of(tmp_path, "audit") == wanted and numbers_of(tmp_path, "main") == [*range(5), 100]


def test_the_name_of_the_table_is_fixed_and_secrets_are_not_kept(tmp_path: Path) -> None:
    secret = icebergs.catalog(tmp_path) | {"token": "hidden"}
    icebergs.opened(tmp_path, catalog=secret).commit([], [rolls.begun()])
    assert "hidden" not in (tmp_path / "_fastwire/dataset.json").read_text()
    with pytest.raises(DatasetMismatchError, match=r"the table of the dataset: shop.orders; configured: shop.other"):
        icebergs.opened(tmp_path, catalog={**secret, "table": "shop.other"})
    with pytest.raises(DatasetMismatchError, match="the table format of the dataset: iceberg; configured: delta"):
        tables.writer(tmp_path).open()


def test_the_table_of_a_log_that_has_lost_its_end_is_refused(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    land_all(writer, 3)
    writer.close()
    (tmp_path / "_fastwire/log/000000000/000000000003.json").unlink()
    shutil.rmtree(tmp_path / "_fastwire/newest")
    with pytest.raises(DatasetDamagedError, match="Iceberg table has files up to entry 3: the end of the log is lost"):
        icebergs.opened(tmp_path)


def test_verify_compares_log_and_table(tmp_path: Path) -> None:
    writer = icebergs.opened(tmp_path)
    land_all(writer, 3)
    writer.close()
    table = icebergs.loaded(tmp_path)
    table.delete("offset < 5")
    report = verify(tmp_path)
    assert report.problems == [] and "5 rows were deleted from the table on purpose" in report.trusted
    (problem,) = verify(tmp_path, strict=True).problems
    assert (problem.kind, problem.text) == ("table", "5 rows were deleted from it")
    table.append(pa.table({"value": [b"x"] * 6, "offset": [0, 1, 2, 3, 4, 5]}))
    (problem,) = verify(tmp_path).problems
    assert problem.kind == "table" and "has 1 row more than have landed" in problem.text
    writer = icebergs.opened(tmp_path)
    tables.land(writer, 14, 19)
    assert icebergs.numbers(tmp_path) == [*range(6), *range(5, 20)]


def test_a_dataset_that_was_moved_or_copied_gets_no_files_into_its_table(tmp_path: Path) -> None:
    """Its files would go on in another place, and the numbers of their entries stand for those of the first place."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    catalog = icebergs.catalog(tmp_path)
    writer = icebergs.opened(first, catalog=catalog)
    tables.land(writer, -1, 4)
    writer.close()
    shutil.copytree(first, second)
    copy = icebergs.opened(second, catalog=catalog)
    tables.land(copy, 4, 9)
    assert f"is at file://{first}, and the dataset at file://{second}" in copy.stopped
    copy.close()
    writer = icebergs.opened(first, catalog=catalog)
    tables.land(writer, 4, 9)
    assert writer.stopped == ""
    writer.close()
    assert icebergs.numbers(tmp_path) == list(range(10))
    shutil.rmtree(second)
    first.rename(second)
    moved = icebergs.opened(second, catalog=catalog)
    tables.land(moved, 9, 14)
    assert "if it was moved, move it back" in moved.stopped
    moved.close()
    first.symlink_to(second)  # the paths of the table lead to the files again
    moved = icebergs.opened(second, catalog=catalog)
    tables.land(moved, 14, 19)
    assert moved.stopped == ""
    moved.close()
    assert icebergs.numbers(tmp_path) == list(range(20))
    report = verify(second, strict=True, catalog=catalog)
    assert report.problems == [] and report.table is not None and report.table.rewritten == 0
