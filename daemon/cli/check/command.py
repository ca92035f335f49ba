"""The command ``check``: checks a configuration, and with ``--connect`` the brokers and folders."""

from typing import Annotated

import typer

from ..exits import EXIT_CONFIG, EXIT_FAILED
from ..options import ConfigPath


def check(
    config: ConfigPath,
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="Also connect to the brokers, decode the first records, ask REST and Glue catalogs for their tables, "
            "and try the file operations of a commit in the folders.",
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option("--all", help="With --connect and a dataset for each topic: show every topic that can land."),
    ] = False,
) -> None:
    """Check a configuration. Prints what each pipeline guarantees.

    Exit code 78: the configuration is wrong; 1: another check has failed.
    """
    from ...config import load_config
    from ..printed import show_job, show_pipeline
    from .checks import database_checks, folder_checks, spark_checks, static_checks

    loaded = load_config(config)
    results = static_checks(loaded)
    if connect:
        from ...runtime.logs import configure
        from .connect import check_connections

        configure(level="error")
        results += folder_checks(loaded) + database_checks(loaded) + spark_checks(loaded)
        results += check_connections(loaded, every=every)
    for name, pipeline in loaded.pipelines.items():
        show_pipeline(name, pipeline, [result for result in results if result.pipeline == name])
    for name, job in loaded.spark.items():
        show_job(name, job, [result for result in results if result.pipeline == f"spark.{name}"])
    for each in loaded.former:
        typer.echo(f"note: {each}")
    failed = [result for result in results if not result.ok]
    if failed:
        typer.echo(f"{len(failed)} of {len(results)} checks failed")
        raise typer.Exit(EXIT_CONFIG if any(result.configuration for result in failed) else EXIT_FAILED)
    typer.echo("all checks passed" if connect else "the configuration is valid (--connect also checks the brokers)")
