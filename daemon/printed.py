"""What the commands print of a configuration, of a job and of a proof, for people."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from .checks import CheckResult
    from .config import PipelineConfig, SourceConfig, SparkConfig, SparkSource
    from .dataset.verify import VerifyReport

__all__ = ["origin", "show_job", "show_pipeline", "show_report"]


def show_pipeline(name: str, pipeline: "PipelineConfig", results: "Sequence[CheckResult]") -> None:
    """A pipeline of the configuration, and what its checks have found."""
    from .config import format_duration, format_size

    source, sink = pipeline.source, pipeline.sink
    typer.echo(f"{name}")
    _show_topics(source)
    typer.echo(f"           at {source.url}, {_shared_as(source)}")
    typer.echo(f"           start {source.start}, where nothing has landed yet")
    where = f" in {sink.path}" if sink.path else ""
    compression = f", {sink.compression}" if sink.compression else ""
    typer.echo(f"  into     {sink.type}{where}{compression}, {sink.writers} writer{'s' * (sink.writers > 1)}")
    roll = sink.roll
    typer.echo(
        f"           a roll ends at {format_size(roll.bytes)}, {roll.rows:,} rows, {format_duration(roll.age)} of age "
        f"or {format_duration(roll.idle)} of rest"
    )
    for result in results:
        typer.echo(f"  {result.what:<8} {result.detail if result.ok else f'FAILED: {result.detail}'}")


def _shared_as(source: "SourceConfig") -> str:
    """As whom a pipeline reads, and with whom, in the words of its system."""
    if source.system != "kafka":
        return f"subscription {source.subscription} ({source.subscription_type})"
    if source.group_protocol == "none":
        return f"all partitions alone, offsets kept as group {source.subscription}"
    return f"group {source.subscription} (protocol {source.group_protocol})"


def _show_topics(source: "SourceConfig | SparkSource") -> None:
    for topic in source.topics:
        typer.echo(f"  from     {topic}")
    if source.topics_pattern is not None:
        typer.echo(f"  from     all topics that match {source.topics_pattern}, also those that come later")


def origin(source: "SparkSource") -> str:
    """Where a job reads, in few words."""
    return str(source.dataset or source.topics_pattern or ", ".join(source.topics))


def show_job(name: str, job: "SparkConfig", results: "Sequence[CheckResult]") -> None:
    """A job of the configuration, and what its checks have found."""
    from .config import format_duration

    typer.echo(f"spark.{name}")
    source, values = job.source, f"{job.decode.format} values"
    if source.dataset is not None:
        typer.echo(f"  from     {source.dataset}, {values}")
    else:
        word = "group" if source.system == "kafka" else "subscription"
        kept = f"no {word}" if source.subscription is None else f"{word} {source.subscription}"
        _show_topics(source)
        typer.echo(f"           at {source.url}, {kept}, {values}")
        typer.echo(f"           start {source.start}, where the checkpoint is new")
        if source.subscription is None:
            typer.echo("           the brokers do not know what is still to be read: retention alone keeps it")
    if job.dedupe is not None:
        keys = ", ".join(job.dedupe.key)
        typer.echo(f"  once     by {keys}, within {format_duration(job.dedupe.watermark)} of the first")
    folders = "".join(f"/{level}=…" for level in job.output.partition_by)
    typer.echo(f"  into     {job.output.path}{folders} ({job.output.format}), bad rows into {job.output.quarantine}")
    when = "when started, until all is read" if job.trigger is None else f"every {format_duration(job.trigger)}"
    typer.echo(f"  runs     {when}")
    for result in results:
        typer.echo(f"  {result.what:<8} {result.detail if result.ok else f'FAILED: {result.detail}'}")


_MOST_LINES = 20  # of one kind: a dataset may have a thousand logs


def show_report(report: "VerifyReport") -> None:
    """What `verify` has found in a dataset."""
    from .dataset.verify import counted
    from .progress import format_bytes

    verdict = "sound" if report.ok else counted(len(report.problems), "problem")
    typer.echo(f"{report.path}: {verdict}")
    if report.system:
        typer.echo(
            f"  {counted(report.rows, 'row')} in {counted(report.files, 'file')}, {format_bytes(report.nbytes)}, "
            f"{report.entries:,} log entries of {report.system}"
        )
    if report.diverted_entries:
        typer.echo(
            f"  {report.diverted_entries:,} entries ({report.diverted_rows:,} rows) could not be decoded: diverted"
        )
    if report.filtered:
        typer.echo(f"  {report.filtered:,} rows were filtered on purpose")
    if report.pending:
        typer.echo(f"  committed and about to appear: {counted(len(report.pending), 'file')}")
    if report.removed:
        typer.echo(f"  taken away since: {counted(len(report.removed), 'file')}")
    _show_list(
        "landed",
        [
            f"{each.log.topic} {each.log.partition}: {each.start} to {each.end}, {each.rows:,} rows"
            for each in report.logs
        ],
    )
    _show_list("proven", report.proven)
    _show_list("on the broker's word", report.trusted)
    _show_list("problems", [f"{each.kind}: {each.where}: {each.text}" for each in report.problems])


def _show_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        typer.echo(title)
    for line in lines[:_MOST_LINES]:
        typer.echo(f"  {line}")
    if len(lines) > _MOST_LINES:
        typer.echo(f"  … and {len(lines) - _MOST_LINES:,} more")
