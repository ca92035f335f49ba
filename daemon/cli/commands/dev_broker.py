"""The command ``dev-broker``: serves an embedded broker."""

import errno
from typing import Annotated

import typer

from ..exits import EXIT_FAILED
from ..options import System, argument


def dev_broker(
    system: Annotated[System, typer.Argument(metavar="SYSTEM", help="Protocol to serve.", show_default=False)],
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=0, max=65535, help="Port; default: that of the system; 0: a free one."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", metavar="N", min=0, help="Number of partitions of --topic, and of topics that clients use."
        ),
    ] = 0,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic to create; may be repeated.")
    ] = None,
) -> None:
    """Serve an embedded broker, in memory, until Ctrl-C. It is for tests and first tries."""
    from ...devbroker.base import dev_broker as make
    from ...devbroker.server import serve

    broker = make(system.value, partitions=partitions)
    for name in dict.fromkeys(topic or ()):
        with argument("--topic"):
            broker.create_topic(name, partitions)
    if port is None:
        port = broker.default_port
    try:
        serve(broker, port, host=host, ready=lambda url: typer.echo(f"listening at {url}"))
    except OSError as exc:
        reason = "the address is already in use" if exc.errno == errno.EADDRINUSE else exc.strerror
        typer.echo(f"cannot listen at {host}:{port}: {reason}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
