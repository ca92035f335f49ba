"""The command ``dead``: shows the dead letters of a dataset, and writes them out as files."""

from pathlib import Path
from typing import Annotated

import typer

from ..options import DatasetPlace, StoreAccess

__all__ = ["dead"]


def dead(
    path: DatasetPlace,
    reason: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those with this reason, such as Truncated.")
    ] = None,
    each: Annotated[bool, typer.Option("--list", help="Show each one, with its first bytes.")] = False,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the raw bytes of each into a file, and letters.jsonl beside them."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with --list one a letter.")] = False,
    config: StoreAccess = None,
) -> None:
    """Show the dead letters of a dataset: records that could not be decoded, with reasons and positions.

    Nothing in the dataset is changed. Daemons may write meanwhile.
    """
    from ...dataset.letters import dead_letters
    from ..letters import LetterFolder, LetterSums, letter_line, show_letter
    from ..stores import bucket_at

    sums = LetterSums(path)
    folder = None if write is None else LetterFolder(write)
    for letter in dead_letters(path, bucket_at(path, config)):
        if reason is not None and letter.kind != reason:
            continue
        sums.add(letter)
        if folder is not None:
            folder.add(letter)
        if each:
            typer.echo(letter_line(letter)) if as_json else show_letter(letter)
    if folder is not None:
        folder.close()
    if not each or not as_json:
        sums.show(as_json=as_json)
