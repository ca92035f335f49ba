"""The command ``completion``: prints the script by which a shell completes commands, options and values."""

from enum import StrEnum
from typing import Annotated

import typer

from ..options import COMPLETE

__all__ = ["completion"]


class Shell(StrEnum):
    """The shells that the command line can be completed in."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that runs the script.", show_default=False)],
) -> None:
    """Print a script that completes commands, options and values: eval "$(fastwire-consume completion bash)"."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # public, without __all__

    typer.echo(get_completion_script(prog_name="fastwire-consume", complete_var=COMPLETE, shell=shell.value))
