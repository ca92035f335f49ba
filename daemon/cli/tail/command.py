"""The command ``tail``: prints the records of a topic."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fastwire.systems import grammars, pattern_examples

from ..decoding import Maps, Message, Registry, SchemaFile, Values, decode_keys
from ..options import URL_HELP, BrokerOptions, argument, with_broker_options
from ..topicnames import complete_topic

if TYPE_CHECKING:
    from ...config import Connection
    from ...sinks.valuedecoder import ValueDecoder

_PATTERNS = " or ".join(pattern_examples())


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
            help="First position: earliest, latest, -10 (so many records before the end of each partition), "
            "-5m (a time ago), an RFC 3339 time, or a position. "
            + " ".join(f"{grammar.title}: {grammar.position_help}." for grammar in grammars() if grammar.position_help),
        ),
    ] = "latest",
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at the current end of the topic.")] = False,
    pattern: Annotated[
        bool,
        typer.Option("--pattern", help=f"Read all topics that match TOPIC, a pattern such as {_PATTERNS}."),
    ] = False,
    form: Annotated[
        Literal["pretty", "jsonl", "raw"] | None,
        typer.Option("--format", help="raw prints one value per line. Default: pretty on a terminal, else jsonl."),
    ] = None,
    schemas: Annotated[
        bool, typer.Option("--schemas", help="Also print the schemas of the records, to standard error.")
    ] = False,
    decode: Annotated[
        Values | None, typer.Option("--decode", help="Print the fields of values of this format.")
    ] = None,
    schema_file: SchemaFile = None,
    message: Message = "",
    registry: Registry = "",
    maps: Maps = None,
    *,
    broker: BrokerOptions,
) -> None:
    """Print the records of a topic as they arrive. Moves no cursor and acknowledges nothing.

    The environment variable FASTWIRE_TOKEN may hold a token, FASTWIRE_PASSWORD a password.
    """
    import asyncio

    from ...config import TopicChoice
    from ...systems.registry import system_named
    from .tail import tail as tail_topic

    connection = broker.connection(url)
    system = system_named(connection.system)
    with argument("TOPIC"):
        grammar = system.grammar
        topics = TopicChoice((), grammar.pattern(topic)) if pattern else TopicChoice((grammar.topic(topic),))
    with argument("--from"):
        begin = system.start_of(start, topics)
    keys = decode_keys(decode, schema_file, message, registry, maps, connection.system)
    decoder = None if keys is None else _decoder(keys, connection)
    asyncio.run(
        tail_topic(
            connection,
            topics,
            begin,
            count=count,
            until_end=until_end,
            form=form or ("pretty" if sys.stdout.isatty() else "jsonl"),
            schemas=schemas,
            decoder=decoder,
        )
    )


def _decoder(keys: dict[str, Any], connection: "Connection") -> "ValueDecoder":
    """Return the decoder of the values. Raises BadParameter."""
    from ...config import ConfigError
    from ...config.decode import DELETED, parse_decode
    from ...sinks.registry import decoder_of
    from ...systems.registry import system_named

    try:
        decode = parse_decode(keys | {"columns": ["*", DELETED]})
        topics = system_named(connection.system).topic_schemas(connection) if decode.by_brokers else None
        return decoder_of(decode, connection.system, topics=topics)
    except ConfigError as exc:
        problem = exc.problems[0]
        option = "--registry" if "registry" in problem.key else "--schema-file"
        raise typer.BadParameter(problem.message, param_hint=option) from None
