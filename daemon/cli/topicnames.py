"""Completion of the names of topics in shells."""

import asyncio

import typer

from fastwire.errors import FastwireError
from fastwire.systems import grammar_named

from .options import broker_options

PATIENCE_S = 2.0
"""The longest wait for the brokers, in seconds: a person waits for the shell."""


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics at the URL of the command line that begin with ``incomplete``.

    There are none where the brokers do not answer in time, or refuse the credentials of the command line.
    """
    from ..config import ConfigError
    from ..config.brokers.source import TopicChoice
    from ..config.parser import parse_connection
    from ..systems.registry import system_named

    # An option that has no value yet ends the parsing: then URL is still among the arguments.
    url = ctx.params.get("url") or next(iter(ctx.args), "")
    try:
        connection = parse_connection({"url": url, **broker_options(ctx.params).keys()})
        grammar = grammar_named(connection.system)
        usual = grammar.pattern_example.rpartition("/")[0]  # a short name is of the namespace of the example
        space = incomplete.rpartition("/")[0] or usual
        pattern = grammar.pattern(f"{space}/.*" if space else ".*")
        describe = system_named(connection.system).describe(connection, TopicChoice((), pattern))
        found = asyncio.run(asyncio.wait_for(describe, PATIENCE_S))
    except (ConfigError, FastwireError, typer.BadParameter, OSError, ValueError, TimeoutError):
        return []
    names = [name for name, _ in found.topics]
    if "/" not in incomplete:
        names = [name.removeprefix(f"{usual}/") for name in names]
    return sorted(name for name in names if name.startswith(incomplete))
