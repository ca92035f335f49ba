"""The text output of ``check`` and ``verify``: pipelines, jobs and reports."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..runtime.amounts import counted, format_bytes
from ..runtime.terminal import printable
from .say import say

if TYPE_CHECKING:
    from rich.table import Table

    from ..config import PipelineConfig, SparkConfig, SparkSource, TopicChoice
    from ..dataset.erasure.erasure import Erasure
    from ..dataset.expiry import Expired
    from ..dataset.proof.report import VerifyReport
    from ..sinks.postgresql.proof import TableReport
    from .check.checks import CheckResult
    from .daemons import Daemon, Fact


def place_of(row: "Mapping[str, Any]", system: str) -> str:
    """Return the place of a record in its partition, as text: ledger, entry and batch index of Pulsar, for example."""
    from fastwire.systems import row_of

    return ":".join(str(row[name]) for name in row_of(system).place if row[name] >= 0)


def show_pipeline(name: str, pipeline: "PipelineConfig", results: "Sequence[CheckResult]") -> None:
    """Print a pipeline of the configuration and the results of its checks."""
    from ..config import format_duration, format_size
    from ..systems.registry import system_named

    source, sink = pipeline.source, pipeline.sink
    say(f"{name}")
    _show_topics(source.chosen)
    say(f"           at {source.url}, {system_named(source.system).sharing(source)}")
    say(f"           start {source.start}, where nothing has landed yet")
    where = f" in {sink.path}" if sink.path else ""
    if sink.is_database:
        where = f" table {sink.table} at {sink.url}, {sink.mode}"
    if sink.connection is not None:
        where = f" topic {sink.topic} at {sink.connection.url}" + (f", positions in {sink.path}" if sink.path else "")
    compression = f", {sink.compression}" if sink.compression else ""
    say(f"  into     {sink.type}{where}{compression}, {sink.writers} writer{'s' * (sink.writers > 1)}")
    if sink.is_dataset:
        levels = [] if sink.split == "none" else [f"each {sink.split}"]
        levels += [f"each {level}" for level in sink.partition_by.words]
        columns = "all columns" if sink.columns is None else f"columns {', '.join(sink.columns)}"
        if pipeline.makes_columns:
            columns = _made_columns(pipeline)
        levels = ["each topic"] * sink.by_topic + levels
        folders = f"folders of their own for {' and '.join(levels)}" if levels else "one folder"
        say(f"           {columns}, {folders}")
    elif pipeline.makes_columns:
        say(f"           {_made_columns(pipeline)}")
    roll = sink.roll
    say(
        f"           a roll ends at {format_size(roll.bytes)}, {roll.rows:,} rows, {format_duration(roll.age)} of age "
        f"or {format_duration(roll.idle)} idle"
    )
    for result in results:
        say(f"  {result.what:<8} {result.detail if result.ok else f'FAILED: {result.detail}'}")


def _made_columns(pipeline: "PipelineConfig") -> str:
    """Return the columns of decoded values or a transform, with their types, and those of the records beside them."""
    from ..sinks.registry import value_decoder

    if pipeline.decode is not None and pipeline.decode.by_topic:
        return "columns by the schema of each topic"
    decoder = value_decoder(pipeline)
    assert decoder is not None
    transform = pipeline.transform if pipeline.decode is None else pipeline.decode.transform
    values = decoder.texts
    columns = ", ".join(f"{name} {values[name]}" if name in values else name for name in decoder.columns)
    if pipeline.decode is not None and pipeline.decode.inferred:
        which = "of the newest schema" if pipeline.decode.registered else "of the values, which are inferred"
        columns = ", ".join(each for each in (f"the fields {which}", columns) if each)
    return f"columns {columns}{'' if transform is None else ' of the transform'}"


def _show_topics(topics: "TopicChoice") -> None:
    for topic in topics.names:
        say(f"  from     {topic}")
    if topics.pattern is not None:
        say(f"  from     all topics that match {topics.pattern}, also those that come later")


def origin(source: "SparkSource") -> str:
    """Return the dataset or the topics that a job reads, as text."""
    from ..config import SparkDataset

    if isinstance(source, SparkDataset):
        return str(source.dataset)
    return str(source.topics_pattern or ", ".join(source.topics))


def show_job(name: str, job: "SparkConfig", results: "Sequence[CheckResult]") -> None:
    """Print a job of the configuration and the results of its checks."""
    from fastwire.systems import grammar_named

    from ..config import SparkDataset, format_duration

    say(f"spark.{name}")
    source, values = job.source, f"{job.decode.format} values"
    if isinstance(source, SparkDataset):
        say(f"  from     {source.dataset}, {values}")
    else:
        word = grammar_named(source.system).group_word
        kept = "" if not word else f"no {word}, " if source.group is None else f"{word} {source.group}, "
        _show_topics(source.chosen)
        say(f"           at {source.url}, {kept}{values}")
        say(f"           start {source.start}, where the checkpoint is new")
        if source.group is None:
            say("           the brokers do not know the job's progress: only retention keeps unread records")
    if job.dedupe is not None:
        keys = ", ".join(job.dedupe.key)
        say(f"  once     by {keys}, within {format_duration(job.dedupe.watermark)} of the first")
    folders = "".join(f"/{level}=…" for level in job.output.partition_by)
    say(f"  into     {job.output.path}{folders} ({job.output.format}), dead letters into {job.output.dead_letters}")
    when = "when started, until all is read" if job.trigger is None else f"every {format_duration(job.trigger)}"
    say(f"  runs     {when}")
    for result in results:
        say(f"  {result.what:<8} {result.detail if result.ok else f'FAILED: {result.detail}'}")


_MOST_LINES = 20  # the most lines of one list: a dataset may have a thousand logs


def show_table_report(report: "TableReport") -> None:
    """Print the report of `verify` on a table of a database."""
    say(f"{report.name}: {counted(len(report.problems), 'problem') if report.problems else 'sound'}")
    say(f"  {counted(report.rows, 'row')}, {report.mode}; {counted(report.partitions, 'partition')}")
    say(
        f"  of {counted(report.records, 'record')} {report.landed:,} have landed, {report.dead_letters:,} are dead "
        f"letters, {report.filtered:,} were left out on purpose"
    )
    if report.removed or report.removed_letters:
        say(f"  removed since: {counted(report.removed, 'row')}, {counted(report.removed_letters, 'dead letter')}")
    for problem in report.problems:
        say(f"  {problem}")


def show_report(report: "VerifyReport") -> None:
    """Print the report of `verify` on a dataset, the most important first and one fact in a line."""
    say(f"{report.path}: {'sound' if report.ok else counted(len(report.problems), 'problem')}")
    _show_list("problems", [f"{each.kind}: {each.where}: {each.text}" for each in report.problems])
    _show_list("to do", list(dict.fromkeys(f"{each.kind}: {each.todo}" for each in report.problems)))
    _show_list("proven from the files and the log", report.proven)
    _show_list("taken on trust", report.trusted)
    _show_list("not checked", report.unproven)
    _show_list("content", list(_content(report)))
    _show_list(
        "partitions",
        [
            f"{name}: {'the beginning' if each.start == '-1:-1' else each.start} to {each.end}"
            # The rows of a job are counted by its query, and not by the logs that this has read.
            + (f", {counted(each.rows, 'row')}" if each.log.system == report.system else "")
            for each, name in zip(report.logs, _log_names(report), strict=True)
        ],
    )


def _log_names(report: "VerifyReport") -> list[str]:
    """Return the topic and the partition of each log, and what tells it from another log with the same ones."""
    logs = [each.log for each in report.logs]
    names = [log.topic if log.partition == "-1" else f"{log.topic} {log.partition}" for log in logs]
    again = {name for name, times in Counter(names).items() if times > 1}
    clusters = len({log.cluster for log in logs}) > 1
    return [
        f"{name} (incarnation {log.incarnation}{f' in {log.cluster}' if clusters else ''})" if name in again else name
        for name, log in zip(names, logs, strict=True)
    ]


def _content(report: "VerifyReport") -> Iterator[str]:
    """Yield what a dataset has, a fact a line; what is zero is left out."""
    if report.system:
        yield f"{counted(report.rows, 'row')} in {counted(report.files, 'file')}, {format_bytes(report.nbytes)}"
        yield f"{counted(report.entries, 'log entry', 'log entries')}, of {report.system}"
    if (table := report.table) is not None:
        rows = "rows that it does not count" if table.rows is None else counted(table.rows, "row")
        yield f"table of {table.format}, version {table.version:,}: {rows} in {counted(table.files, 'file')}"
        yield f"the table has the log entries up to {table.upto:,}"
    letters = f"{counted(report.dead_letters, 'dead letter')} with {counted(report.dead_letter_rows, 'row')}"
    transformed = f", {report.unselected:,} of them by the transform" if report.unselected else ""
    for count, fact in (
        (report.dead_letters, letters),
        (report.replayed, f"{counted(report.replayed, 'dead letter')} written back to a topic"),
        (report.sent, f"{counted(report.sent, 'row')} in the topic"),
        (report.filtered, f"{counted(report.filtered, 'row')} filtered on purpose{transformed}"),
        (report.erased, f"{counted(report.erased, 'row')} erased"),
        (report.expired_files, f"{counted(report.expired_files, 'file')} expired and deleted"),
        (len(report.pending), f"{counted(len(report.pending), 'file')} committed and not published yet"),
        (len(report.removed), f"{counted(len(report.removed), 'file')} removed after the commit"),
        (len(report.undeleted), f"{counted(len(report.undeleted), 'file')} expired and not deleted: run expire again"),
        (len(report.unerased), f"{counted(len(report.unerased), 'file')} with an unfinished erasure: run erase again"),
    ):
        if count:
            yield fact


def _show_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        say(title)
    for line in lines[:_MOST_LINES]:
        say(f"  {line}")
    if len(lines) > _MOST_LINES:
        say(f"  … and {len(lines) - _MOST_LINES:,} more")


def show_expired(found: "Expired", *, dry_run: bool) -> None:
    """Print the result of `expire`."""
    entries = counted(found.entries, "log entry", "log entries")
    dead_letters = f", and {counted(found.dead_letters, 'file')} of dead letters" if found.dead_letters else ""
    say(
        f"{found.path}: {entries} {'would expire' if dry_run else 'expired'}: {counted(found.rows, 'row')} in "
        f"{counted(found.files, 'file')}, {format_bytes(found.nbytes)}{dead_letters}"
    )
    say(f"  {counted(found.deleted, 'file')} {'would be deleted' if dry_run else 'deleted'}")


def show_erased(found: "Erasure", *, dry_run: bool) -> None:
    """Print the result of `erase`."""
    say(
        f"{found.path}: {counted(found.rows, 'row')} {'would be erased' if dry_run else 'erased'} from "
        f"{counted(found.files, 'file')}, of {found.looked_into:,} looked into"
    )
    if found.dead_letters:
        what = "would be emptied" if dry_run else "emptied"
        say(f"  {counted(found.dead_letters, 'dead letter')} with the text in them {what}")
    if found.finished:
        say(f"  finished for an interrupted call: {counted(found.finished, 'file')}")
    if found.open_rolls:
        say(
            f"  not committed yet, by writers at work: {counted(found.open_rolls, 'file')}: run erase again behind "
            "their next commit, or with --wait"
        )
    _show_list("not looked into", [f"{name}: {why}" for name, why in found.unread.items()])


_STYLES = {"bad": "bold red", "dim": "dim", "": ""}


def fact_table(facts: "Iterable[Fact]") -> "Table":
    """Return lines of a label and a text as a table without borders."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2), pad_edge=False)
    for fact in facts:
        table.add_row(Text(f"  {fact.label}", "dim"), Text(printable(fact.text), _STYLES[fact.style]))
    return table


def show_daemon(daemon: "Daemon") -> None:
    """Print the status of a daemon; off a terminal without colours and without a limit of width."""
    from rich.console import Console
    from rich.text import Text

    from .daemons import daemon_facts, pipeline_facts

    console = Console(highlight=False, markup=False, emoji=False)

    def show(facts: "Iterable[Fact]") -> None:
        if console.is_terminal:
            console.print(fact_table(facts))
            return
        lines = [(f"  {fact.label}", printable(fact.text)) for fact in facts]
        width = max((len(label) for label, _ in lines), default=0)
        for label, text in lines:  # a table would fill each line up to the longest one
            console.print(f"{label:<{width}}  {text}".rstrip(), soft_wrap=True)

    first, *rest = daemon_facts(daemon)
    console.print(Text(printable(first.text), _STYLES[first.style] or "bold"), soft_wrap=True)
    show(rest)
    for name, pipeline in daemon.status.get("pipelines", {}).items():
        console.print(Text(printable(name), "bold"))
        show(pipeline_facts(pipeline))
