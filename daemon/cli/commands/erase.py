"""The command ``erase``: takes rows out of the files of a dataset."""

import json
from time import monotonic
from typing import Annotated

import typer

from ..options import DatasetPlace, StoreAccess


def erase(
    path: DatasetPlace,
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help='The rows: "key = \'a\'", "customer.id IN (7, 8)", or several of these joined by AND.',
            show_default=False,
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be erased.")] = False,
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="Longest wait for the next commit of writers at work, such as 10m.")
    ] = "0s",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: StoreAccess = None,
) -> None:
    """Erase rows of a dataset. Dead letters that have one of the texts in them lose their bytes.

    For a folder of many datasets this is done for each of them; those without the columns have only dead letters.
    Each file with such rows is written anew and takes the place of the old one under its name. The commit log
    says so before, without the condition. Daemons may write meanwhile, and programs may read. If the command is
    interrupted, the next one finishes its work. It ends with 1 while rows may be left: in rolls that are not committed,
    or in files that cannot be read. Backups, snapshots and object versions keep what they have.
    """
    from ...config import parse_duration
    from ...dataset.erasure.condition import ConditionError, parse_condition
    from ...dataset.erasure.erasure import erase as erase_rows
    from ...runtime.errors import DatasetMismatchError
    from ..options import argument
    from ..printed import show_erased
    from ..roots import Each, show_all_erased
    from ..stores import datasets_at

    with argument("--where"):
        condition = parse_condition(where)
    with argument("--wait"):
        wait_s = parse_duration(wait)
    datasets = Each(datasets_at(path, config), ConditionError)
    many, until = len(datasets.places) > 1, monotonic() + wait_s
    found = []
    try:
        for each in datasets.results(
            lambda place, bucket: [
                erase_rows(
                    place, condition, bucket, dry_run=dry_run, wait_s=max(0.0, until - monotonic()), one_of_many=many
                )
            ]
        ):
            found.append(each)
            if as_json:
                typer.echo(json.dumps({**each.to_json(), "dry_run": dry_run}))
            elif not many:
                show_erased(each, dry_run=dry_run)
    except ConditionError as exc:
        raise typer.BadParameter(str(exc), param_hint="--where") from None
    if many and not as_json:
        show_all_erased(path, found, dry_run=dry_run)
    datasets.end(as_json=as_json)
    if not any(each.known for each in found):
        raise DatasetMismatchError(f"{path}: no file of a dataset has all columns that the condition names")
    if any(each.open_rolls or each.unread for each in found):
        raise typer.Exit(1)
