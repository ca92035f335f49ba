"""The command ``top``: shows running daemons in the terminal, live."""

from typing import Annotated

import typer

from ..options import DAEMON_DEFAULT, DAEMON_HELP, Timeout


def top(
    daemons: Annotated[
        list[str] | None,
        typer.Argument(metavar="DAEMON", help=f"{DAEMON_HELP} Default: {DAEMON_DEFAULT}.", show_default=False),
    ] = None,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Time between two looks.")] = 1.0,
    timeout: Timeout = 2.0,
) -> None:
    """Show the pipelines of running daemons, until Ctrl-C. `status` prints the same once, with an exit code."""
    from rich.console import Console

    from ..daemons import address_of
    from ..options import argument
    from .top import watch

    with argument("DAEMON"):
        addresses = [address_of(daemon) for daemon in daemons or [DAEMON_DEFAULT]]
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        raise typer.BadParameter("top needs a terminal; use `fastwire-consume status` in scripts")
    watch(addresses, interval, timeout, console)
