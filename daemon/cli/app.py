"""``fastwire-consume``: the command line, with a module in ``commands`` for each command.

Each command imports the modules that it needs when it runs, so that ``--help`` does not wait for pyarrow.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fastwire import __version__
from fastwire.errors import FastwireError

from .check.command import check
from .commands.completion import completion
from .commands.dev_broker import dev_broker
from .commands.erase import erase
from .commands.expire import expire
from .commands.man import man
from .commands.query import query
from .commands.run import run
from .commands.schema import schema
from .commands.spark import spark
from .commands.status import status
from .commands.unit import unit
from .commands.verify import verify
from .dead.command import dead
from .demo.command import demo
from .exits import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED
from .infer.command import infer
from .options import COMPLETE
from .produce.command import produce
from .say import say
from .tail.command import tail
from .top.command import top

if TYPE_CHECKING:
    from ..config import ConfigError

app = typer.Typer(
    name="fastwire-consume",
    help="Moves records from message brokers into files, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # pretty exceptions show local variables, which may hold secrets
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_RUNNING = (run, check, status, top, spark, verify, dead, expire, erase, tail, query, infer, produce)
_HELPING = (dev_broker, demo, unit, schema, completion, man)
for command in (*_RUNNING, *_HELPING):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fastwire-consume {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line and end the process with one of the exit codes of :mod:`exits`."""
    if COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # public, without __all__

        completion_init()
    try:
        app(prog_name="fastwire-consume")  # `python -m` shows the same name
    except Exception as exc:
        sys.exit(_explain(exc))
    sys.exit(EXIT_DONE)


def _explain(exc: Exception) -> int:
    """Print an explanation of the failure and return its exit code."""
    from ..config import ConfigError
    from ..runtime.errors import DatasetMismatchError

    if isinstance(exc, ConfigError):
        _say_problems(exc)
        return EXIT_CONFIG
    if isinstance(exc, FastwireError):
        say(str(exc), err=True)
        hopeless = isinstance(exc, DatasetMismatchError) or getattr(exc, "configuration", False)
        return EXIT_CONFIG if hopeless else EXIT_FAILED
    if isinstance(exc, OSError) and exc.strerror:
        say(f"{exc.filename}: {exc.strerror}" if exc.filename is not None else exc.strerror, err=True)
        return EXIT_FAILED
    if isinstance(exc, OSError) and str(exc):  # an object store has no numbers of errors
        say(str(exc), err=True)
        return EXIT_FAILED
    from ..runtime.logs import configure, get_logger

    configure()
    get_logger("cli").exception("failed because of an internal error", error=f"{type(exc).__name__}: {exc}")
    return EXIT_FAILED


def _say_problems(exc: "ConfigError") -> None:
    for problem in exc.problems:
        say(str(problem), err=True)
    count = len(exc.problems)
    if count > 1:
        say(f"the configuration has {count} mistakes", err=True)


if __name__ == "__main__":
    main()
