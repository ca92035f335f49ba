"""The command ``completion``: prints the script by which a shell completes commands, options and values."""

from typing import Annotated, Literal

import typer

from ..options import COMPLETE

# Bash takes a colon for the border of a word, and a URL has some: words are counted here, and what is offered begins
# behind the last colon, because that is what is replaced.
_BASH = """\
_fastwire_consume_completion() {
    local line=${COMP_LINE:0:COMP_POINT} last
    local -a words
    read -ra words <<< "${line}_"
    last=${words[-1]%_}
    mapfile -t COMPREPLY < <(
        COMP_WORDS=$line COMP_CWORD=$((${#words[@]} - 1)) VARIABLE=complete_bash "$1"
    )
    COMPREPLY=("${COMPREPLY[@]#"${last%"${last##*[:=]}"}"}")
}

complete -o default -F _fastwire_consume_completion fastwire-consume"""


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"],
        typer.Argument(metavar="SHELL", help="Shell that runs the script.", show_default=False),
    ],
) -> None:
    """Print a script that completes commands. Its use: eval "$(fastwire-consume completion bash)"."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # public, without __all__

    if shell == "bash":
        typer.echo(_BASH.replace("VARIABLE", COMPLETE))
    else:
        typer.echo(get_completion_script(prog_name="fastwire-consume", complete_var=COMPLETE, shell=shell))
