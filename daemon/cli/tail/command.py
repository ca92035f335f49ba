"""The command ``tail``: prints the records of a topic."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastwire.systems import grammars, pattern_examples

from ..options import URL_HELP, BrokerOptions, argument, refuse, with_broker_options
from ..topicnames import complete_topic

if TYPE_CHECKING:
    from ...config import Connection
    from ...sinks.valuedecoder import ValueDecoder

__all__ = ["tail"]

_PATTERNS = " or ".join(pattern_examples())


class Values(StrEnum):
    """The formats of values that ``tail`` decodes."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class Format(StrEnum):
    """The output formats of ``tail``."""

    PRETTY = "pretty"
    JSONL = "jsonl"
    RAW = "raw"


@with_broker_options(reading=True)
def tail(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help=URL_HELP, show_default=False),
    ],
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="Name of the topic, or of one partition.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ],
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, help="Stop after N records.")] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="First position: earliest, latest, -5m (a time ago), an RFC 3339 time, or a position. "
            + " ".join(f"{grammar.title}: {grammar.position_help}." for grammar in grammars() if grammar.position_help),
        ),
    ] = "latest",
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the topic.")] = False,
    pattern: Annotated[
        bool,
        typer.Option("--pattern", help=f"Read all topics that match TOPIC, a pattern such as {_PATTERNS}."),
    ] = False,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="raw prints one value per line. Default: pretty on a terminal, else jsonl."),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Also print the schemas of the records, to standard error.")
    ] = False,
    decode: Annotated[
        Values | None, typer.Option("--decode", help="Print the fields of values of this format, with --schema-file.")
    ] = None,
    schema_file: Annotated[
        Path | None,
        typer.Option(
            "--schema-file", help="File with the schema: Avro, or a descriptor set of Protobuf.", show_default=False
        ),
    ] = None,
    message: Annotated[
        str, typer.Option("--message", metavar="NAME", help="Full name of the message type of Protobuf.")
    ] = "",
    registry: Annotated[
        str,
        typer.Option(
            "--registry",
            metavar="URL|SYSTEM",
            help="Schema registry whose ids the values begin with, or the system whose brokers keep the schemas: "
            + ", ".join(grammar.name for grammar in grammars() if grammar.keeps_schemas),
        ),
    ] = "",
    *,
    broker: BrokerOptions,
) -> None:
    """Print the records of a topic as they arrive. Moves no cursor and acknowledges nothing.

    The environment variable FASTWIRE_TOKEN may hold a token, FASTWIRE_PASSWORD a password.
    """
    import asyncio

    from ...config import ConfigError, TopicChoice, parse_connection
    from ...systems.registry import system_named
    from .tail import tail as tail_topic

    try:
        connection = parse_connection({"url": url} | broker.keys())
    except ConfigError as exc:
        refuse(exc, broker)
    system = system_named(connection.system)
    with argument("TOPIC"):
        grammar = system.grammar
        topics = TopicChoice((), grammar.pattern(topic)) if pattern else TopicChoice((grammar.topic(topic),))
    with argument("--from"):
        begin = system.start_of(start, topics)
    decoder = None if decode is None else _decoder(decode.value, schema_file, message, registry, connection)
    given = {"--schema-file": schema_file, "--message": message, "--registry": registry}
    if decode is None and (idle := next((option for option, value in given.items() if value), None)):
        raise typer.BadParameter("is for --decode", param_hint=idle)
    chosen = form or (Format.PRETTY if sys.stdout.isatty() else Format.JSONL)
    asyncio.run(
        tail_topic(
            connection,
            topics,
            begin,
            count=count,
            until_end=until_end,
            form=chosen.value,
            schemas=schemas,
            decoder=decoder,
        )
    )


def _decoder(
    form: str, schema_file: Path | None, message: str, registry: str, connection: "Connection"
) -> "ValueDecoder":
    """Return the decoder of the values. Raises BadParameter."""
    from fastwire.systems import grammar_named

    from ...config import ConfigError
    from ...config.decode import DELETED, parse_decode
    from ...sinks.registry import decoder_of
    from ...systems.registry import system_named

    if schema_file is None:
        raise typer.BadParameter("needs --schema-file", param_hint="--decode")
    system = connection.system
    by_brokers = registry == system and grammar_named(system).keeps_schemas
    if registry and form == "json" and not by_brokers:
        raise typer.BadParameter("is for --decode avro and protobuf", param_hint="--registry")
    if message and form != "protobuf":
        raise typer.BadParameter("is for --decode protobuf", param_hint="--message")
    keys: dict[str, Any] = {"format": form, "schema": str(schema_file), "columns": ["*", DELETED]}
    keys |= {"registry": registry if by_brokers else {"url": registry}} if registry else {}
    keys |= {"message": message} if message else {}
    try:
        topics = system_named(system).topic_schemas(connection) if by_brokers else None
        return decoder_of(parse_decode(keys), system, topics=topics)
    except ConfigError as exc:
        problem = exc.problems[0]
        option = "--registry" if "registry" in problem.key else "--schema-file"
        raise typer.BadParameter(problem.message, param_hint=option) from None
