"""The command ``verify``: checks the files of a dataset against its log."""

from typing import Annotated

import typer

from ..exits import EXIT_DONE, EXIT_FAILED
from ..options import DatasetPlace, StoreAccess

__all__ = ["verify"]


def verify(
    path: DatasetPlace,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail for files that were removed after their commit.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every file whole and compare it with its checksum.")
    ] = False,
    config: StoreAccess = None,
) -> None:
    """Prove from the files and the log of a dataset that it holds every record once. Exit code 1: it does not."""
    from ...dataset.proof.verify import verify as verify_dataset
    from ..printed import show_report
    from ..stores import bucket_at, catalog_at

    report = verify_dataset(path, strict, deep=deep, medium=bucket_at(path, config), catalog=catalog_at(path, config))
    if as_json:
        import json

        typer.echo(json.dumps(report.to_json()))
    else:
        show_report(report)
    raise typer.Exit(EXIT_DONE if report.ok else EXIT_FAILED)
