"""The command ``man``: prints the manual page."""

import typer


def man(ctx: typer.Context) -> None:
    """Print the manual page of all commands. Its place: /usr/local/share/man/man1/fastwire-consume.1."""
    from ..manual import manual_page

    assert ctx.parent is not None
    typer.echo(manual_page(ctx.parent), nl=False)
