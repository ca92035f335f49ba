"""The command ``expire``: deletes old files of a dataset."""

import json
from typing import Annotated

import typer

from ..options import DatasetPlace, StoreAccess


def expire(
    path: DatasetPlace,
    older: Annotated[
        str,
        typer.Option(metavar="TIME", help="Minimum age of a commit, such as 30d or 12h.", show_default=False),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be deleted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: StoreAccess = None,
) -> None:
    """Delete the files of old commits, with their dead letters. Their records do not land again.

    For a folder of many datasets this is done for each of them. The commit log says that they have expired
    before any file is deleted. Daemons may write meanwhile. If the command is interrupted, the next one deletes what is
    left.
    """
    from ...config import parse_duration
    from ...dataset.expiry import expire as expire_dataset
    from ..options import argument
    from ..printed import show_expired
    from ..roots import Each, show_all_expired
    from ..stores import datasets_at

    with argument("--older"):
        older_s = parse_duration(older)
    datasets = Each(datasets_at(path, config))
    found = []
    for each in datasets.results(lambda place, bucket: [expire_dataset(place, older_s, bucket, dry_run=dry_run)]):
        found.append(each)
        if as_json:
            typer.echo(json.dumps({**each.to_json(), "dry_run": dry_run}))
        elif len(datasets.places) == 1:
            show_expired(each, dry_run=dry_run)
    if not as_json and len(datasets.places) > 1:
        show_all_expired(path, found, dry_run=dry_run)
    datasets.end(as_json=as_json)
