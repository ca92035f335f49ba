"""The command ``unit``: prints a systemd unit."""

from typing import Annotated

import typer


def unit(
    hardened: Annotated[bool, typer.Option("--hardened", help="Add systemd's sandboxing options.")] = False,
) -> None:
    """Print a systemd unit that runs this installation. Its place: /etc/systemd/system/fastwire@.service."""
    from ...service.systemd import unit as unit_text

    typer.echo(unit_text(hardened), nl=False)
