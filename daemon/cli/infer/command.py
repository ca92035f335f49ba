"""The command ``infer``: prints a schema of the values of topics, and the table ``[decode]`` for them."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fastwire.systems import grammar_named

from ...runtime.amounts import counted
from ..options import URL_HELP, BrokerOptions, argument, refuse, with_broker_options
from ..say import say
from ..topicnames import complete_topic

Format = Literal["parquet", "arrow", "jsonl", "delta", "iceberg"]


@with_broker_options(reading=True)
def infer(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP, show_default=False)],
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", help="Names of topics.", show_default=False, autocompletion=complete_topic),
    ],
    records: Annotated[int, typer.Option("--records", metavar="N", min=1, help="Records to look at.")] = 10_000,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="File for the schema; it must not exist yet.", show_default=False
        ),
    ] = None,
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD", help="Object whose keys are values, such as ids: it becomes a map."),
    ] = None,
    times: Annotated[
        bool, typer.Option("--times", help="Texts of which each is a time with a zone, or a date, become times.")
    ] = False,
    registry: Annotated[
        str, typer.Option("--registry", metavar="URL", help="Schema registry whose ids the values begin with.")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="File for a configuration that lands the topics; it must not exist yet.",
            show_default=False,
        ),
    ] = None,
    sink: Annotated[Format, typer.Option("--sink", help="Format of the dataset in --config.")] = "parquet",
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="URL",
            help="Catalog of the Iceberg table in --config, a REST service or a database; default: one of SQLite.",
        ),
    ] = "",
    *,
    broker: BrokerOptions,
) -> None:
    """Print a schema for the newest records of topics. Also their format, a table [decode], and what is odd.

    Moves no cursor and acknowledges nothing. The environment variable FASTWIRE_TOKEN may hold a token,
    FASTWIRE_PASSWORD a password.
    """
    from fastwire.decode.program import SchemaError

    from ...config import ConfigError, parse_config, parse_connection
    from ...runtime.logs import configure
    from ...systems.registry import system_named
    from .configuration import configuration, lines, sink_table, write_new
    from .finding import NothingInferred, findings, kept
    from .framing import Kind, Sorted
    from .samples import newest

    configure(level="error")
    for option, file in (("--output", output), ("--config", config)):
        if file is not None and file.exists():
            raise typer.BadParameter(f"{file} exists already", param_hint=option)
    if catalog and (config is None or sink != "iceberg"):
        raise typer.BadParameter("is for --config with --sink iceberg", param_hint="--catalog")
    try:
        connection = parse_connection({"url": url} | broker.keys())
        with argument("TOPIC"):
            found = newest(url, topics, records, broker.keys())
    except ConfigError as exc:
        refuse(exc, broker)
    values = Sorted(found.values())
    say(
        f"{', '.join(topics)}: the newest {counted(values.total, 'record')} of {counted(found.partitions, 'partition')}"
    )
    for kind, count in values.counts.most_common():
        say(f"  {counted(count, kind.one, kind)}")
    try:
        schema = None
        if grammar_named(connection.system).keeps_schemas and not registry and values.kind not in (None, Kind.OBJECT):
            schemas = system_named(connection.system).topic_schemas(connection)
            schema = kept(schemas, connection.system, topics, say)
        schema = schema or findings(values, topics[0], frozenset(maps or ()), times=times, registry=registry, say=say)
    except SchemaError as exc:
        say(f"no schema: {exc}. Name such a field by --map FIELD, or write the schema", err=True)
        raise typer.Exit(1) from None
    except NothingInferred as exc:
        say(f"no schema: {exc}", err=True)
        raise typer.Exit(1) from None
    place, name = Path(schema.file) if output is None else output, Path(schema.file).stem
    known: dict[str, Any] = {} if output is None and schema.registered else {"schema": str(place)}
    if config is not None:
        if output is None and times:
            raise typer.BadParameter("is needed for --times", param_hint="--output")
        if output is None and not schema.registered:
            known = {"schema": "infer", **({"maps": maps} if maps else {})}
        columns = {"columns": ["*"] if "_timestamp" in schema.fields else ["*", "_timestamp"]}
        text = configuration(
            name, url, connection.system, topics, broker, schema.keys | known | columns, sink_table(sink, name, catalog)
        )
    if output is not None:
        write_new(output, schema.content)
    if config is not None:
        try:
            parse_config(text)  # which reads the schema
        except ConfigError as exc:
            if output is not None:
                output.unlink()
            say(f"no configuration: {exc}", err=True)
            raise typer.Exit(1) from None
        write_new(config, text.encode())
    if output is not None:
        told = [f"the schema is in {output}", ""]
    elif config is not None:
        told = []
    elif schema.text:
        told = [f"the schema, for a file {place} (--output {place} writes it)", "", *schema.text.splitlines(), ""]
    else:
        told = [f"the schema is a descriptor set: --output {place} writes it", ""]
    if config is not None:
        told.append(f"the configuration is in {config}")
    else:
        told += ["in the configuration", "", *lines(f"pipelines.{name}.decode", schema.keys | known)]
    for line in ("", *told):
        say(line)
