"""The command ``run``: runs pipelines until a signal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..bounds import Bounds
from ..options import ConfigPath, complete_pipeline

if TYPE_CHECKING:
    from ...config import Config

LogLevel = Literal["debug", "info", "warning", "error"]


def run(
    config: ConfigPath,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline",
            "-p",
            metavar="NAME",
            help="Run only this pipeline; may be repeated.",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Read up to the current end of the topics, commit, and exit.")
    ] = False,
    max_records: Annotated[
        int | None, typer.Option("--max-records", metavar="N", min=1, help="Stop each pipeline after about N records.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="START", help="First position of new topics, instead of source.start."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="END", help='Read what precedes this time, or "now", and exit; instead of source.end.'
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            "--into",
            metavar="PATH",
            help="Land one pipeline in another dataset, beside the daemon that runs: under a group of its own, without "
            "the HTTP server.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Group or subscription of --into; default: that of the pipeline and a hash of the path.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Lowest level that is logged; SIGUSR1 switches to debug and back.")
    ] = "info",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Same as --log-level debug.")] = False,
) -> None:
    """Run pipelines until a signal. The first SIGTERM or Ctrl-C commits and exits, a second aborts."""
    from ...config import load_config
    from ...runtime.logs import configure

    loaded = load_config(config)
    _require_pipelines(loaded, pipeline)
    loaded = Bounds(start, until, into, group).apply(loaded, pipeline or list(loaded.pipelines))
    configure(level="debug" if verbose else log_level)
    from ...service.service import run_service
    from ..check.checks import refusals

    code = run_service(loaded, pipelines=pipeline, until_end=until_end, max_records=max_records, refusals=refusals)
    raise typer.Exit(code)


def _require_pipelines(config: "Config", names: Sequence[str] | None) -> None:
    from ...config import ConfigError, Problem
    from ...config.values.text import nearest

    if not config.pipelines:
        missing = "is required: at least one; use `fastwire-consume spark` to run jobs on Spark"
        raise ConfigError([Problem(str(config.path), "pipelines", missing)])
    for name in names or ():
        if name not in config.pipelines:
            hint = nearest(name, config.pipelines) or f": the pipelines are {', '.join(config.pipelines)}"
            raise typer.BadParameter(f'no pipeline is called "{name}"{hint}', param_hint="--pipeline")
