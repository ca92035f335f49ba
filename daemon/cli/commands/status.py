"""The command ``status``: prints the status of a running daemon once."""

from typing import Annotated

import typer

from ..exits import EXIT_DONE, EXIT_FAILED, EXIT_NOT_READY, EXIT_STUCK
from ..options import DAEMON_DEFAULT, DaemonName, Timeout

__all__ = ["status"]

_EXITS = {"healthy": EXIT_DONE, "no answer": EXIT_FAILED, "not ready": EXIT_NOT_READY, "stuck": EXIT_STUCK}


def status(
    daemon: DaemonName = DAEMON_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing: only the exit code.")] = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print the status of a running daemon. Exit codes: 0 healthy, 1 no answer, 3 not ready, 4 stuck.

    Not ready: a pipeline is starting, has failed, or reaches no broker. Stuck: a call of a sink does not end.
    """
    from ..daemons import address_of, look_at
    from ..options import argument
    from ..printed import show_daemon

    with argument("DAEMON"):
        address = address_of(daemon)
    seen = look_at(address, timeout)
    if as_json and not quiet:
        import json

        typer.echo(json.dumps(seen.to_json()))
    elif not quiet:
        show_daemon(seen)
    raise typer.Exit(_EXITS[seen.health])
