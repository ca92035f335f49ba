"""The command ``spark``: runs the Spark jobs of a configuration, or tries them."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ..options import ConfigPath
from ..say import say

if TYPE_CHECKING:
    from ...config import SparkConfig


def spark(
    config: ConfigPath,
    job: Annotated[
        list[str] | None, typer.Option("--job", "-j", metavar="NAME", help="Run only this job; may be repeated.")
    ] = None,
    dry_run: Annotated[
        int | None,
        typer.Option("--dry-run", metavar="ROWS", min=1, help="Process this many rows without writing anything."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="URL of the Spark master; default: local[*].")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's log at level INFO.")] = False,
) -> None:
    """Run Spark jobs. They decode records, keep dead letters aside, drop duplicates and write a table."""
    from ...config import load_config
    from ...runtime.logs import configure
    from ...spark.job.run import chosen_jobs, open_session, run_jobs

    loaded = load_config(config)
    jobs = chosen_jobs(loaded, job or ())
    settings = {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f'"{text}" is not KEY=VALUE', param_hint="--conf")
        settings[key] = value
    configure(level="debug" if verbose else "info")
    session = open_session(settings, master)
    # What ends a query is told by the job, in one line: Spark and its bridge to Python would tell it with their frames.
    session.sparkContext.setLogLevel("INFO" if verbose else "OFF")
    if not verbose:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        if dry_run is None:
            raise typer.Exit(run_jobs(session, loaded, list(jobs)))
        _try_jobs(session, jobs, dry_run)
    finally:
        session.stop()


def _try_jobs(session: object, jobs: Mapping[str, "SparkConfig"], rows: int) -> None:
    from ...spark.job.trial import try_job
    from ..printed import origin

    for name, job in jobs.items():
        trial = try_job(session, name, job, rows)
        say(f"{name}")
        say(f"  tried    {trial.rows:,} rows of {origin(job.source)}: {trial.dead_letters:,} would be dead letters")
        for reason, count in trial.reasons:
            say(f"           {count:,} times: {reason}")
        say(f"  table    {', '.join(f'{column} {kind}' for column, kind in trial.columns)}")
    say("nothing was written")
