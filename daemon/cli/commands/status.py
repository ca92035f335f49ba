"""The command ``status``: prints the status of a running daemon once."""

from typing import Annotated

import typer

from ...runtime.health import Health
from ..exits import EXIT_DEGRADED, EXIT_DONE, EXIT_FAILED, EXIT_NOT_READY, EXIT_STUCK
from ..options import DAEMON_DEFAULT, DaemonName, Timeout

_EXITS = {
    Health.HEALTHY: EXIT_DONE,
    "no answer": EXIT_FAILED,
    Health.NOT_READY: EXIT_NOT_READY,
    Health.STUCK: EXIT_STUCK,
    Health.DEGRADED: EXIT_DEGRADED,
}


def status(
    daemon: DaemonName = DAEMON_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing: only the exit code.")] = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print the status of a running daemon. Exit codes: 0 healthy, 1 no answer, 3 not ready, 4 stuck, 5 degraded.

    Not ready: a pipeline is starting, has failed, or reaches no broker. Stuck: a call of a sink does not end.
    Degraded: some records do not land: a partition is stopped or cannot be read, a sink waits, a table takes no files.
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
