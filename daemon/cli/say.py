"""Lines of commands for people. All text of brokers, files and producers goes to the terminal this way."""

import typer

from ..runtime.terminal import printable


def say(text: str, *, err: bool = False) -> None:
    """Print one line, to standard error if ``err``; characters that act on a terminal are escaped."""
    typer.echo(printable(text), err=err)
