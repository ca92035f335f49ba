"""The command ``erase``: takes rows out of the files of a dataset."""

from typing import Annotated

import typer

from ..options import DatasetPlace, StoreAccess

__all__ = ["erase"]


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
    """Take rows out of the files of a dataset, and the bytes out of dead letters that have one of the texts in them.

    Each file with such rows is written anew and takes the place of the old one under its name. The log of the dataset
    says so before, without the condition. Daemons may write meanwhile, and programs may read. If the command is
    interrupted, the next one finishes its work. It ends with 1 while rows may be left: in rolls that are not committed,
    or in files that cannot be read. Backups, snapshots and object versions keep what they have.
    """
    from ...config import parse_duration
    from ...dataset.erasure.condition import ConditionError, parse_condition
    from ...dataset.erasure.erasure import erase as erase_rows
    from ..options import argument
    from ..printed import show_erased
    from ..stores import bucket_at

    with argument("--where"):
        condition = parse_condition(where)
    with argument("--wait"):
        wait_s = parse_duration(wait)
    try:
        found = erase_rows(path, condition, bucket_at(path, config), dry_run=dry_run, wait_s=wait_s)
    except ConditionError as exc:
        raise typer.BadParameter(str(exc), param_hint="--where") from None
    if as_json:
        import json

        typer.echo(json.dumps({**found.to_json(), "dry_run": dry_run}))
    else:
        show_erased(found, dry_run=dry_run)
    if found.open_rolls or found.unread:
        raise typer.Exit(1)
