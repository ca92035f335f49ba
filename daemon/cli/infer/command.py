"""The command ``infer``: prints a schema of the values of topics, and the table ``[decode]`` for them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..options import URL_HELP, BrokerOptions, argument, refuse, with_broker_options
from ..say import say
from ..topicnames import complete_topic

__all__ = ["infer"]


@with_broker_options(reading=True)
def infer(
    url: Annotated[str, typer.Argument(metavar="URL", help=URL_HELP, show_default=False)],
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="Names of topics.", show_default=False, autocompletion=complete_topic),
    ],
    records: Annotated[int, typer.Option("--records", min=1, help="Number of records to look at.")] = 10_000,
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
    *,
    broker: BrokerOptions,
) -> None:
    """Look at the newest records of topics: print their format, a schema, a table [decode], and what is odd.

    Moves no cursor and acknowledges nothing. The environment variable FASTWIRE_TOKEN may hold a token,
    FASTWIRE_PASSWORD a password.
    """
    from fastwire.decode.program import SchemaError

    from ...config import ConfigError
    from ...dataset.proof.report import counted
    from ...runtime.logs import configure
    from .finding import NothingInferred, findings
    from .framing import Sorted
    from .samples import newest

    configure(level="error")
    if output is not None and output.exists():
        raise typer.BadParameter(f"{output} exists already", param_hint="--output")
    try:
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
        schema = findings(values, topics[0], frozenset(maps or ()), times=times, registry=registry, say=say)
    except SchemaError as exc:
        say(f"no schema: {exc}. Name such a field by --map FIELD, or write the schema", err=True)
        raise typer.Exit(1) from None
    except NothingInferred as exc:
        say(f"no schema: {exc}", err=True)
        raise typer.Exit(1) from None
    place = Path(schema.file) if output is None else output
    if output is not None:
        output.write_bytes(schema.content)
        say("")
        say(f"the schema is in {output}")
    elif schema.text:
        say("")
        say(f"the schema, for a file {place} (--output {place} writes it)")
        say("")
        for line in schema.text.splitlines():
            say(line)
    else:
        say("")
        say(f"the schema is a descriptor set: --output {place} writes it")
    say("")
    say("in the configuration")
    say("")
    for line in _table(schema.keys | {"schema": str(place)}, Path(schema.file).stem):
        say(line)


def _table(keys: dict[str, Any], name: str) -> list[str]:
    import json

    lines = [f"[pipelines.{name}.decode]"]
    for key, value in keys.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{each} = {json.dumps(text)}" for each, text in value.items())
            lines.append(f"{key} = {{ {inner} }}")
        else:
            lines.append(f"{key} = {json.dumps(value)}")
    return lines
