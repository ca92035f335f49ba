"""The tables of a job on Spark: who may land there, and how a batch is split, without a Spark."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from fastwire.coverage import Coverage
from fastwire.decode.evolution import Column
from fastwire.position import Log, Position, Span
from fastwire_daemon.cli.printed import show_report
from fastwire_daemon.config import parse_config
from fastwire_daemon.config.spark import SparkOutput
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.errors import (
    ConfigurationRefused,
    DatasetGoneError,
    DatasetMismatchError,
    SinkFailedError,
)
from fastwire_daemon.spark.job.checkpoint import split_path
from fastwire_daemon.spark.job.failure import is_passing
from fastwire_daemon.spark.job.keyed import KeyedRows
from fastwire_daemon.spark.job.keys import Keys
from fastwire_daemon.spark.job.output import DatasetOutput, _DeadLetterTable, _Table
from fastwire_daemon.spark.job.plan import split_of
from fastwire_daemon.spark.job.planned import Planned, PlannedBatches
from fastwire_daemon.spark.job.split import Pieces
from tests.support import icebergs

NUMBER = Column("number", "l", True)
PLAIN = DatasetOptions(
    system="spark",
    cluster="orders",
    columns=("number",),
    types=(NUMBER,),
    older_columns=("number bigint",),
    single_log=True,
)
# As versions wrote them whose Parquet tables could get no columns.
OLDER = replace(PLAIN, columns=("number bigint",), types=())
DEAD_LETTERS = replace(
    PLAIN,
    columns=("value", "reason"),
    types=(Column("value", "u", True), Column("reason", "u", True)),
    older_columns=("value", "reason"),
)


def by_value() -> Pieces:
    """Bad rows are those with a value."""

    def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        is_bad = batch.column("value").is_valid()
        yield batch.filter(pc.invert(is_bad)).select(["number"]), batch.filter(is_bad).select(["value", "reason"])

    return pieces


@dataclass
class Frame:
    """A batch as the output sees it: good and bad rows, and the id of its query. Tasks run at once, in this process."""

    query: str
    good: Sequence[int]
    bad: Sequence[str] = ()
    written: Callable[[], None] = lambda: None

    @property
    def sparkSession(self) -> Any:  # noqa: N802 - Spark's name
        return self

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        return self

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        assert name == "sql.streaming.queryId"
        return self.query

    def mapInArrow(self, task: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Any:  # noqa: N802
        columns = {
            "number": pa.array([*self.good, *[None] * len(self.bad)], pa.int64()),
            "value": pa.array([*[None] * len(self.good), *self.bad], pa.string()),
        }
        columns["reason"] = pa.array(["bad"] * len(columns["value"]))
        batch = pa.record_batch(columns)
        self._reports = [tuple(row.values()) for each in task(iter([batch])) for row in each.to_pylist()]
        self.written()
        return self

    def collect(self) -> list[Any]:
        return self._reports


def output(
    folder: Path,
    name: str = "a",
    split: str = "one",
    table: DatasetOptions = PLAIN,
    at: str = "",
    batches: PlannedBatches | None = None,
    keys: Keys | None = None,
) -> DatasetOutput:
    """The output of a job with its own dead letters and checkpoint; the table is shared. It dies at the step ``at``."""
    folders = {"path": folder / "table", "dead_letters": folder / f"{name}_bad", "checkpoint": folder / name}
    settings = SparkOutput.model_validate({key: str(path) for key, path in folders.items()})
    (folder / name).mkdir(exist_ok=True)
    made = DatasetOutput(settings, table, DEAD_LETTERS, split, by_value, batches=batches, keys=keys)

    def reached(step: str) -> None:
        if step == at:
            die()

    made._table._writer._reached = reached
    made.open()
    return made


def test_a_checkpoint_whose_table_is_gone_is_refused_at_the_start(tmp_path: Path) -> None:
    """Without new records no batch would find it out."""
    one = output(tmp_path)
    one.write(Frame("first", range(10)), 0)
    one.close()
    done = tmp_path / "a" / "commits" / "0"
    done.parent.mkdir()
    done.touch()
    output(tmp_path).close()
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationRefused, match=r"has committed batch 0, and the table at .* has none"):
        output(tmp_path)
    assert not (tmp_path / "table").exists()


def die(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt("killed")


def rows(path: Path, column: str = "number") -> list[Any]:
    found: list[Any] = ds.dataset(path, format="parquet").to_table()[column].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("moment", ["before", "while"])
def test_two_queries_that_begin_on_one_empty_table(tmp_path: Path, moment: str) -> None:
    """The second to commit is refused, whenever the first did it, and whatever both have seen before."""
    one, two = output(tmp_path, "a"), output(tmp_path, "b")

    def first() -> None:
        assert one.write(Frame("first", range(10)), 0).rows_out == 10

    if moment == "before":
        first()
    late = Frame("second", range(10), written=first if moment == "while" else lambda: None)
    with pytest.raises(ConfigurationRefused, match=r"written with another checkpoint \(query first\)"):
        two.write(late, 0)
    assert one.write(Frame("first", range(10, 20)), 1).rows_out == 10
    one.close()
    two.close()
    assert rows(tmp_path / "table") == list(range(20))
    report = verify(tmp_path / "table")
    assert report.ok, report.problems
    again = output(tmp_path, "b")
    with pytest.raises(ConfigurationRefused, match="another checkpoint"):
        again.write(Frame("second", range(10)), 0)
    again.close()


def test_a_schema_that_changes_between_dead_letters_and_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(good: Sequence[int], bad: Sequence[str], split: str, batch: int = 0) -> None:
        made = output(tmp_path, split=split)
        try:
            made.write(Frame("query", good, bad), batch)
        finally:
            made.close()

    with monkeypatch.context() as dying:
        dying.setattr(_DeadLetterTable, "commit", _Table.commit, raising=False)
        dying.setattr(_Table, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            run([1, 2, 3], ["x"], "one")
    assert rows(tmp_path / "a_bad", "value") == ["x"]
    assert not list((tmp_path / "table").glob("*.parquet"))
    # Looser: x is good now, and stricter: 3 is bad now.
    for good, bad in (([1, 2, 3, 99], []), ([1, 2], ["3", "x"])):
        with pytest.raises(ConfigurationRefused, match=r"decode or dedupe\.key of the job has changed in between"):
            run(good, bad, "two")
    assert split_path(tmp_path / "a").read_text() == "one"
    run([1, 2, 3], ["x"], "one")
    run([4], ["y"], "two", batch=1)
    assert rows(tmp_path / "table") == [1, 2, 3, 4]
    assert rows(tmp_path / "a_bad", "value") == ["x", "y"]
    assert split_path(tmp_path / "a").read_text() == "two"


def test_what_splits_good_rows_from_bad_ones(tmp_path: Path) -> None:
    """The content of the schema counts, wherever it stands; settings that are about good rows alone do not."""

    def split(schema: str, more: str = "", key: str = "order_id") -> str:
        file = tmp_path / "orders.ddl"
        file.write_text(schema)
        text = f"""
[spark.orders]
source = {{ dataset = "/landed" }}
decode = {{ format = "json", schema = "{file}" }}
dedupe = {{ key = ["{key}"], watermark = "1h" }}
output = {{ path = "/table", dead_letters = "/bad", checkpoint = "/checkpoint"{more} }}
"""
        return split_of(parse_config(text, {}).spark["orders"])

    one = split("order_id BIGINT")
    assert split("order_id BIGINT", ', compression = "none"') == one
    assert "order_id BIGINT" in one
    assert len({one, split("order_id BIGINT NOT NULL"), split("order_id BIGINT", key="customer")}) == 3


def in_table(folder: Path, form: str, *more: Column) -> DatasetOptions:
    """The options of a dataset that is published in a table, with the column of numbers and ``more``."""
    types = (NUMBER, *more)
    catalog = icebergs.catalog(folder / "table") if form == "iceberg" else {}
    names = tuple(each.name for each in types)
    return replace(PLAIN, columns=names, types=types, table=form, catalog=catalog)


def landed(folder: Path, form: str) -> tuple[list[int], int]:
    """The numbers in the table by the format's own library, and how many commits have added them."""
    if form == "iceberg":
        table = icebergs.loaded(folder / "table")
        return sorted(table.scan().to_arrow()["number"].to_pylist()), len(table.snapshots())
    delta = DeltaTable(str(folder / "table"))
    written = [each for each in delta.history() if each["operation"] == "WRITE"]
    return sorted(delta.to_pyarrow_table()["number"].to_pylist()), len(written)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_each_batch_is_one_commit_of_the_table(tmp_path: Path, form: str) -> None:
    """Killed before the commit of the log, between that and the commit of the table, and behind both."""
    options = in_table(tmp_path, form)
    for batch, at in enumerate(("files-synced", "table-ready", "table-committed")):
        good = Frame("query", range(batch * 10, batch * 10 + 10), ["x"])
        with pytest.raises(KeyboardInterrupt):
            output(tmp_path, table=options, at=at).write(good, batch)
        made = output(tmp_path, table=options)
        assert made.write(good, batch).replayed == (at != "files-synced")
        made.close()
        assert landed(tmp_path, form) == (list(range(batch * 10 + 10)), batch + 1)
    report = verify(tmp_path / "table", strict=True)
    assert report.problems == [] and report.table is not None and report.filtered == 3
    assert rows(tmp_path / "a_bad", "value") == ["x"] * 3


def test_rows_that_are_gone_when_they_are_read_again_fail_the_batch(tmp_path: Path) -> None:
    """One of them may be the copy of a row that stays: without it all copies would be missing."""

    def timed() -> Pieces:
        def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
            for good, bad in by_value()(batch):
                yield good.append_column("at", pa.array([0] * good.num_rows, pa.timestamp("us"))), bad

        return pieces

    made = output(tmp_path, keys=Keys(tmp_path / "a", KeyedRows(("number",), ("at",), "at", timed), 1))
    numbers = [0, 1, 2, 3]
    with pytest.raises(
        SinkFailedError, match=r"batch 0 has other rows .* 0 that stay and 1 .* instead of 4"
    ) as failure:
        made.write(Frame("query", numbers, ["x"], numbers.clear), 0)
    assert is_passing(failure.value)
    assert not list((tmp_path / "table").glob("*.parquet"))
    numbers = [0, 1, 2, 3]
    made.write(Frame("query", numbers, ["x"]), 0)
    counts = made.write(Frame("query", [3, 4], ["y"]), 1)
    assert (counts.rows_out, counts.duplicates) == (1, 1)
    made.close()
    assert rows(tmp_path / "table") == [0, 1, 2, 3, 4]
    assert rows(tmp_path / "a_bad", "value") == ["x", "y"]


def test_a_table_that_takes_no_files_fails_the_batch(tmp_path: Path) -> None:
    """It is repeated until the table is in order, and published then."""
    options = in_table(tmp_path, "delta")
    made = output(tmp_path, table=options)
    made.write(Frame("query", range(10)), 0)
    log = tmp_path / "table" / "_delta_log"
    log.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(SinkFailedError, match="a batch is committed, but not in its table yet: the Delta table"):
            made.write(Frame("query", range(10, 20)), 1)
    (tmp_path / "away").rename(log)
    assert made.write(Frame("query", range(10, 20)), 1).replayed
    made.close()
    assert landed(tmp_path, "delta") == (list(range(20)), 2)


def test_a_table_gets_columns_and_keeps_their_types(tmp_path: Path) -> None:
    for batch, more in enumerate(((), (Column("note", "u", True),))):
        made = output(tmp_path, table=in_table(tmp_path, "delta", *more))
        made.write(Frame("query", [batch]), batch)
        made.close()
    assert landed(tmp_path, "delta")[0] == [0, 1]
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().column_names == ["number", "note"]
    with pytest.raises(ConfigurationRefused, match="cannot change the type of its column note from string to long"):
        output(tmp_path, table=in_table(tmp_path, "delta", Column("note", "l", True)))


NOTED = replace(
    PLAIN,
    columns=("number", "note"),
    types=(NUMBER, Column("note", "u", True)),
    older_columns=("number bigint", "note string"),
)


@pytest.mark.parametrize("first", [PLAIN, OLDER], ids=["typed", "older"])
def test_a_table_of_parquet_gets_columns_and_keeps_their_types(tmp_path: Path, first: DatasetOptions) -> None:
    """Also one of a version that described its columns without types."""
    for batch, table in enumerate((first, PLAIN, NOTED, PLAIN)):
        made = output(tmp_path, table=table)
        made.write(Frame("query", [batch], ["x"] if batch == 2 else ()), batch)
        made.close()
    assert rows(tmp_path / "table") == [0, 1, 2, 3]
    report = verify(tmp_path / "table")
    assert report.ok, report.problems
    number = replace(PLAIN, types=(Column("number", "i", True),), older_columns=("number int",))
    with pytest.raises(DatasetMismatchError, match=r"int64 cannot become number int32|number bigint; configured"):
        output(tmp_path, table=number)
    note = replace(NOTED, types=(NUMBER, Column("note", "l", True)), older_columns=("number bigint", "note bigint"))
    with pytest.raises(ConfigurationRefused, match=r"note string cannot become note int64\. Keep the type, or use a"):
        output(tmp_path, table=note)


class Ranges:
    """The plan of Spark: batch ``n`` reads the offsets from ``ends[n - 1]``, or 0, to ``ends[n]``."""

    def __init__(self, *ends: int) -> None:
        self.ends = ends

    def of(self, batch: int) -> Planned:
        log = Log("kafka", "", "t", "0")
        start = self.ends[batch - 1] if batch else 0
        return Planned((Span(log, Position(start, -1), Position(self.ends[batch], -1), 0),), () if batch else (log,))

    def begin(self, coverage: Coverage) -> None:
        """See ``PlannedBatches``."""

    def check(self) -> None:
        """See ``PlannedBatches``."""


def write(folder: Path, batch: int, numbers: range, batches: PlannedBatches | None, bad: Sequence[str] = ()) -> bool:
    """Write one batch as a new process; return whether it had landed."""
    made = output(folder, batches=batches)
    try:
        return made.write(Frame("query", numbers, bad), batch).replayed
    finally:
        made.close()


def plan(folder: Path, *batches: int) -> None:
    """Let the checkpoint have these batches."""
    (folder / "a" / "offsets").mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (folder / "a" / "offsets" / str(batch)).write_text('v1\n{}\n{"logOffset":0}')


def test_a_batch_is_what_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not write(tmp_path, 0, range(10), Ranges(10), ["x"])
    assert not write(tmp_path, 1, range(10, 20), Ranges(10, 20))
    assert write(tmp_path, 1, range(10, 20), Ranges(10, 20))
    assert write(tmp_path, 0, range(20), Ranges(20))  # both at once, from a checkpoint that has lost them
    with pytest.raises(ConfigurationRefused, match=r"it reads t partition 0 from 10 to 25, and the table has it up to"):
        write(tmp_path, 1, range(10, 25), Ranges(10, 25))
    # The numbers of batches come again; what they read does not.
    assert not write(tmp_path, 1, range(20, 30), Ranges(20, 30), ["y"])
    assert not write(tmp_path, 2, range(30, 40), Ranges(20, 30, 40), ["z"])
    assert write(tmp_path, 2, range(30, 40), Ranges(20, 30, 40), ["z"])
    assert rows(tmp_path / "table") == list(range(40))
    assert rows(tmp_path / "a_bad", "value") == ["x", "y", "z"]
    for folder in ("table", "a_bad"):
        report = verify(tmp_path / folder)
        assert report.ok, report.problems
        assert {each.end for each in report.logs if each.log.topic == "t"} == {"40"}
        show_report(report)
        assert "\n  t 0: 0 to 40\n" in capsys.readouterr().out
    with pytest.raises(ConfigurationRefused, match=r"goes on with batch 4, but the table at .* ends before batch 3"):
        write(tmp_path, 4, range(40, 50), Ranges(20, 30, 40, 45, 50))


def test_a_table_without_positions_goes_on(tmp_path: Path) -> None:
    """A batch of a number that it knows is the one that landed if it was planned before; else it may be another."""
    for batch in range(2):
        assert not write(tmp_path, batch, range(10 * batch, 10 * batch + 10), None)
    with pytest.raises(ConfigurationRefused, match=r"is older than the table at .*: it plans batch 1 again"):
        write(tmp_path, 1, range(10, 30), Ranges(10, 30))
    plan(tmp_path, 0, 1)
    assert write(tmp_path, 1, range(10, 20), Ranges(10, 20))
    assert not write(tmp_path, 2, range(20, 30), Ranges(10, 20, 30))
    assert write(tmp_path, 1, range(10, 20), Ranges(10, 20))
    assert not write(tmp_path, 3, range(30, 40), Ranges(10, 20, 30, 40))
    with pytest.raises(ConfigurationRefused, match="it reads t partition 0 from 20 to 45"):
        write(tmp_path, 2, range(20, 45), Ranges(10, 20, 45))
    assert rows(tmp_path / "table") == list(range(40))
    assert verify(tmp_path / "table").ok


def test_dead_letters_that_landed_before_their_table_are_known_by_their_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two; the checkpoint has lost the batch as well, and plans more."""
    with monkeypatch.context() as dying:
        dying.setattr(_DeadLetterTable, "commit", _Table.commit, raising=False)
        dying.setattr(_Table, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, 0, range(10), Ranges(10), ["x"])
    with pytest.raises(
        ConfigurationRefused, match="it reads t partition 0 from 0 to 20, and the table has it up to 10"
    ):
        write(tmp_path, 0, range(20), Ranges(20), ["x", "y"])
    assert not write(tmp_path, 0, range(10), Ranges(10), ["x"])
    assert not write(tmp_path, 1, range(10, 20), Ranges(10, 20), ["y"])
    assert rows(tmp_path / "table") == list(range(20))
    assert rows(tmp_path / "a_bad", "value") == ["x", "y"]


@pytest.mark.parametrize("gone", ["table", "a_bad"])
def test_a_table_that_vanishes_is_not_made_again_by_the_same_job(tmp_path: Path, gone: str) -> None:
    job = output(tmp_path)
    job.open()
    job.write(Frame("query", [1], ["x"]), 0)
    (tmp_path / gone).rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):  # of a task
        job.write(Frame("query", [2], ["y"]), 1)
    job.close()
    with pytest.raises(DatasetGoneError, match="folder is gone"):
        job.open()
    assert not (tmp_path / gone).exists()
    (tmp_path / "away").rename(tmp_path / gone)
    job.open()
    job.write(Frame("query", [2], ["y"]), 1)
    job.close()
    assert all(verify(tmp_path / each).rows == 2 for each in ("table", "a_bad"))
