"""The command ``verify``: checks the files of a dataset against its log."""

import json
from typing import Annotated

import typer

from ..exits import EXIT_DONE, EXIT_FAILED
from ..options import DatasetPlace, StoreAccess

DATABASE_SCHEMES = ("postgresql://", "postgres://")
STATEMENT_S = 3600.0  # it counts rows


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
    """Prove that a dataset holds every record once. Reads its files and its commit log. Exit code 1: it does not.

    For a folder of many datasets, all of them are verified: the totals, and details of those with problems.
    For the URL of a PostgreSQL database, compare each table with its positions, rows and dead letters.
    """
    if path.startswith(DATABASE_SCHEMES):
        _verify_database(path, as_json=as_json, strict=strict)
    from ...dataset.proof.verify import verify as verify_dataset
    from ..printed import show_report
    from ..roots import Each, Verified
    from ..stores import catalog_at, datasets_at

    datasets = Each(datasets_at(path, config))
    reports = datasets.results(
        lambda place, bucket: [
            verify_dataset(place, strict, deep=deep, medium=bucket, catalog=catalog_at(place, config))
        ]
    )
    if len(datasets.places) == 1:
        report = next(reports)
        typer.echo(json.dumps(report.to_json())) if as_json else show_report(report)
        raise typer.Exit(EXIT_DONE if report.ok else EXIT_FAILED)
    verified = Verified(path, datasets.failed)
    for report in reports:
        verified.add(report)
    verified.show(as_json=as_json)
    raise typer.Exit(EXIT_DONE if verified.ok else EXIT_FAILED)


def _verify_database(url: str, *, as_json: bool, strict: bool) -> None:
    from ...config.sinks.database import connection_uri, read_url, shown
    from ..printed import show_table_report
    from ..say import say

    try:
        from ...sinks.postgresql.proof import verify_tables
        from ...sinks.postgresql.session import Server
    except ModuleNotFoundError as exc:
        raise typer.BadParameter(f"this needs a driver: pip install 'fastwire-daemon[postgresql]' ({exc})") from exc
    try:
        server = Server(connection_uri(read_url(url), None), shown(url), STATEMENT_S)
    except ValueError as exc:
        raise typer.BadParameter(f"the URL {exc}") from None
    reports = verify_tables(server, strict=strict)
    ok = bool(reports) and not any(report.problems for report in reports)
    if as_json:
        typer.echo(json.dumps({"ok": ok, "tables": [report.to_json() for report in reports]}))
    else:
        for report in reports:
            show_table_report(report)
        if not reports:
            say(f"{server.name}: no table is recorded here")
    raise typer.Exit(EXIT_DONE if ok else EXIT_FAILED)
