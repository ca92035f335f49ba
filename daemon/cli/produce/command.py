"""The command ``produce``: writes records to a topic."""

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from fastwire.systems import grammars

from ..options import URL_HELP, BrokerOptions, argument, files_by_name, refuse, with_broker_options
from ..topicnames import complete_topic

_NAMED = " or ".join(grammar.title for grammar in grammars() if grammar.topic_is_partition)
Codec = Literal["none", "lz4", "zlib", "gzip", "zstd", "snappy"]
_LOAD_BYTES = 1 << 20  # largest size of a batch of generated records, before compression


@with_broker_options(reading=False)
def produce(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP, show_default=False)],
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help=f"Name of the topic; with {_NAMED} also of one partition.",
            show_default=False,
            autocompletion=complete_topic,
        ),
    ],
    form: Annotated[
        Literal["lines", "jsonl"],
        typer.Option(
            "--format",
            help="jsonl: one object per line with value, key, properties, event_time, ordering_key, partition.",
        ),
    ] = "lines",
    load: Annotated[
        int | None, typer.Option("--load", metavar="N", min=1, help="Generate N records instead of reading input.")
    ] = None,
    size: Annotated[
        int,
        typer.Option("--size", metavar="BYTES", min=1, max=80_000, help="Size of each generated record, in bytes."),
    ] = 100,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=0, help="Maximum records per batch; 0: no batches.")
    ] = 1000,
    batching: Annotated[
        Literal["key", "grouped", "mixed"],
        typer.Option(
            "--batching",
            help="Keys in a batch, where the system reads batches by key: key keeps every order, grouped that of each "
            "key, mixed that of partitions.",
        ),
    ] = "key",
    compression: Annotated[
        Codec | None,
        typer.Option("--compression", help="Compression of the batches; default: lz4, where the system has it."),
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", metavar="N", min=1, help="Maximum records per second.")] = None,
    key_hash: Annotated[
        Literal["java", "murmur3"],
        typer.Option("--key-hash", help="Hash of keys to partitions; use that of the topic's other producers."),
    ] = "java",
    create: Annotated[
        int,
        typer.Option(
            "--create",
            metavar="PARTITIONS",
            min=0,
            help="Create the topic if it does not exist; 0 leaves that to the brokers.",
        ),
    ] = 0,
    public_keys: Annotated[
        list[str] | None,
        typer.Option("--public-key", metavar="NAME=FILE", help="Encrypt the records for this public key (PEM)."),
    ] = None,
    *,
    broker: BrokerOptions,
) -> None:
    """Write records to a topic. They are lines of standard input, or generated ones. Ctrl-C flushes and ends.

    In JSON lines value, key and ordering_key are text, null or {"base64": "..."}; a null value is a tombstone.
    The environment variable FASTWIRE_TOKEN may hold a token, FASTWIRE_PASSWORD a password.
    """
    import asyncio
    from functools import partial

    from ...config import ConfigError
    from ...runtime.logs import configure
    from ...systems.load import Load
    from ...systems.registry import system_named
    from ...systems.writer import Put, WriteOptions
    from .feed import feed
    from .input import parse_json, parse_line

    sealed = files_by_name("--public-key", public_keys)
    if sealed and load is not None:
        raise typer.BadParameter("generated records are not encrypted", param_hint="--public-key")
    try:
        connection = broker.connection(url)
        system = system_named(connection.system)
        with argument("TOPIC"):
            system.grammar.topic(topic)
        options = WriteOptions(
            compression=None if compression is None else compression.upper(),
            batch=batch,
            create=create,
            batching=batching,
            hashing=key_hash,
            public_keys=sealed,
        )
        make_writer = partial(system.open_writer, connection, topic, options)
        make_writer()  # raises now what is wrong with the options; it connects only when it is entered
    except ConfigError as exc:
        refuse(exc, broker)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from None
    configure(level="warning")
    what: Load | Callable[[bytes], Put] = parse_json if form == "jsonl" else parse_line
    if load is not None:
        together = batch and max(1, min(batch, _LOAD_BYTES // size))
        what = Load(records=load, batch=together, record_bytes=size)
    asyncio.run(feed(make_writer, what, rate=rate))
