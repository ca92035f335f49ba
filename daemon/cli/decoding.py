"""The options of commands that decode values."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fastwire.systems import grammar_named, grammars

Values = Literal["avro", "json", "protobuf"]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema-file",
        help="File with the schema: Avro, or a descriptor set of Protobuf. Default: the schemas of --registry, "
        "for JSON the fields of the values.",
        show_default=False,
    ),
]
Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD",
        help="Object of JSON without a schema file whose keys are values, such as ids: it becomes a map.",
    ),
]
Message = Annotated[str, typer.Option("--message", metavar="NAME", help="Full name of the message type of Protobuf.")]
Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        metavar="URL|SYSTEM",
        help="Schema registry whose ids the values begin with, or the system whose brokers keep the schemas: "
        + ", ".join(grammar.name for grammar in grammars() if grammar.keeps_schemas),
    ),
]


def decode_keys(
    form: Values | None,
    schema_file: Path | None,
    message: str,
    registry: str,
    maps: Sequence[str] | None,
    system: str,
) -> dict[str, Any] | None:
    """Return the keys of ``[decode]`` that options for topics of ``system`` name, None without a format.

    Raises BadParameter for options that do not fit together.
    """
    if form is None:
        given = {"--schema-file": schema_file, "--message": message, "--registry": registry, "--map": maps}
        if idle := next((option for option, value in given.items() if value), None):
            raise typer.BadParameter("is for --decode", param_hint=idle)
        return None
    by_brokers = registry == system and grammar_named(system).keeps_schemas
    if registry and form == "json" and not by_brokers:
        raise typer.BadParameter("is for --decode avro and protobuf", param_hint="--registry")
    if schema_file is None and not registry:
        if form != "json":
            raise typer.BadParameter("needs --schema-file or --registry", param_hint="--decode")
        from ..config.decode import INFER

        schema_file = Path(INFER)
    elif maps:
        raise typer.BadParameter("is for --decode json without a schema", param_hint="--map")
    if message and form != "protobuf":
        raise typer.BadParameter("is for --decode protobuf", param_hint="--message")
    keys: dict[str, Any] = {"format": form} | ({} if schema_file is None else {"schema": str(schema_file)})
    keys |= {"registry": registry if by_brokers else {"url": registry}} if registry else {}
    keys |= ({"message": message} if message else {}) | ({"maps": maps} if maps else {})
    return keys
