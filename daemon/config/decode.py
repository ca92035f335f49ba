"""``[pipelines.NAME.decode]``: the decoding of values into columns, and the rules between its keys."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError

from fastwire.systems import positions_named, row_of

from .access import AuthConfig, TlsConfig
from .connection import Tell
from .fields import FolderPath, RegistryUrl, Text, is_exposed
from .partitioning import check_partitioning
from .problem import ConfigError, Problem
from .secured import check_auth, check_tls
from .table import Table
from .text import KeyPath, nearest

if TYPE_CHECKING:
    from fastwire.decode.program import Step

__all__ = [
    "DELETED",
    "DecodeConfig",
    "RegistryConfig",
    "check_decode",
    "chosen_columns",
    "parse_decode",
    "read_program",
]

SINKS = ("parquet", "arrow", "jsonl")
DELETED = "_deleted"
"""Column of files: true in the rows of null values. Such values are bad if the column was not asked for."""


class RegistryConfig(Table):
    """A schema registry with the Confluent API: values begin with a zero byte and the id of their schema in 4 bytes."""

    url: RegistryUrl
    """URL of the registry, such as "https://registry.example.com"."""
    auth: AuthConfig = AuthConfig.model_construct()
    """Login at the registry: a user, a token, or what makes one."""
    tls: TlsConfig = TlsConfig.model_construct()
    """Verification of the registry's certificate, and the client's own certificate."""


class DecodeConfig(Table):
    """The decoding of values: their fields become columns of the files."""

    format: Literal["avro", "json", "protobuf"]
    """Format of the values. avro: the binary encoding of one record, without a header, or with that of a registry.
    json: one object. protobuf: one message, without a header, or with that of a registry."""
    definition: FolderPath = Field(alias="schema")
    """File with the schema of the columns: an Avro schema in JSON, whose top is a record. Without a registry it is also
    the schema of all values; for json it is the shape of the objects. For protobuf: a descriptor set of protoc."""
    message: Text | None = None
    """Full name of the message type of protobuf, such as "shop.Order"; not needed if the schema has one alone."""
    registry: RegistryConfig | None = None
    """Schema registry that has the schemas of the values, for avro and protobuf."""
    evolve: Literal["add", "strict", "divert"] = "add"
    """Columns of another schema: add them to the dataset (new ones take nulls, numbers become wider); strict: stop the
    partition, and refuse to start with another schema file; divert: its values become dead letters."""
    columns: tuple[Text, ...] = ("*",)
    """Columns to keep: fields of the values ("*": all), and columns of the records with _ before their name. With
    "_deleted" a null value (a tombstone) becomes a row in which it is true, and the columns of the values are null."""
    transform: Text | None = None
    """SQL for each row, such as "SELECT id, amount * 100 AS cents FROM batch WHERE amount > 0". * stands for the
    columns above, and columns of the records are there by name. DuckDB runs it (the extra sql); it must be row-wise."""
    on_bad: Literal["divert", "stop"] = "divert"
    """A value that does not match the schema becomes a dead letter in the same commit; or stop its partition."""


def parse_decode(keys: Mapping[str, Any]) -> DecodeConfig:
    """Return the table with these keys. Raises ConfigError."""
    try:
        return DecodeConfig.model_validate(keys)
    except ValidationError as exc:
        problems = [
            Problem(
                "", ".".join(("decode", *map(str, error["loc"]))), str(error.get("ctx", {}).get("error", error["msg"]))
            )
            for error in exc.errors(include_url=False)
        ]
    raise ConfigError(problems)


def read_program(path: Path, form: str, message: str | None = None) -> "tuple[Step, ...]":
    """Compile the schema in a file, for values of the format ``form``; ``message`` is a type of Protobuf.

    Raises ValueError with a message for the author of the configuration.
    """
    from fastwire.decode.avro import compile_avro  # few configurations need them
    from fastwire.decode.jsonschema import compile_json
    from fastwire.decode.program import SchemaError

    try:
        if form == "protobuf":
            return _read_protobuf(path, message or "")
        return (compile_json if form == "json" else compile_avro)(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ValueError(f"cannot read {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except SchemaError as exc:
        raise ValueError(f"{path}: {exc}") from None


def _read_protobuf(path: Path, message: str) -> "tuple[Step, ...]":
    from fastwire.decode.descriptors import message_of
    from fastwire.decode.protobuf import compile_protobuf

    if path.suffix == ".proto":
        made = path.with_suffix(".desc")
        raise ValueError(
            f"{path} is source: make a descriptor set of it with protoc --include_imports --descriptor_set_out={made} "
            f"{path}, and name that one"
        )
    return compile_protobuf(message_of(path.read_bytes(), message))


def chosen_columns(wanted: Sequence[str], program: "Sequence[Step]", system: str) -> tuple[str, ...]:
    """Return the columns of the files in their order. Raises ValueError for an unknown or repeated name."""
    top = program[0]
    fields = [step.name for step in program[top.first : top.first + top.children]]
    own = [*(f"_{name}" for name in row_of(system).names if name != "value"), DELETED]
    columns: list[str] = []
    for name in wanted:
        if name != "*" and name not in fields and name not in own:
            raise ValueError(
                f'"{name}" is neither a field of the schema nor a column of the records{nearest(name, [*fields, *own])}'
            )
        if name in fields and name in own:
            raise ValueError(f'"{name}" is a field of the schema and a column of the records: leave it out')
        columns += [each for each in fields if each not in wanted] if name == "*" else [name]
    if repeated := sorted({name for name in columns if columns.count(name) > 1}):
        raise ValueError(f'"{repeated[0]}" is repeated')
    return tuple(columns)


def check_decode(path: KeyPath, decode: Mapping[str, Any], sink: Mapping[str, Any], system: str, tell: Tell) -> None:
    """Check the keys beside those of the sink, and the schema; report each problem to ``tell``."""
    kind = sink.get("type")
    if isinstance(kind, str) and kind not in SINKS:
        tell(path, f"is for the sinks {', '.join(SINKS)}, not for {kind}")
    if "columns" in sink:
        tell((*path[:-1], "sink", "columns"), "decode.columns chooses the columns of a pipeline that decodes values")
    if system and not positions_named(system).number_columns:
        tell(path, f"is not supported for {system}: its records have no positions for dead letters")
    if "message" in decode and decode.get("format") != "protobuf":
        tell((*path, "message"), 'is for format = "protobuf"')
    if "registry" in decode and decode.get("format") == "json":
        tell((*path, "registry"), 'is for format = "avro" and "protobuf"')
    elif isinstance(decode.get("registry"), Mapping):
        _check_registry((*path, "registry"), decode["registry"], tell)
    schema, columns = decode.get("schema"), decode.get("columns", ["*"])
    if schema is None:
        tell((*path, "schema"), "is required: the file with the schema of the values")
    if not isinstance(schema, str) or not schema.strip():
        return
    try:
        program = read_program(Path(schema), str(decode.get("format")), _text(decode.get("message")))
    except ValueError as exc:
        tell((*path, "schema"), str(exc))
        return
    chosen: tuple[str, ...] | None = None
    if columns == []:
        tell((*path, "columns"), "names no column")
    elif system and isinstance(columns, list) and all(isinstance(name, str) for name in columns):
        try:
            chosen = chosen_columns(columns, program, system)
        except ValueError as exc:
            tell((*path, "columns"), str(exc))
    transform, landing = decode.get("transform"), "schema"
    if isinstance(transform, str) and transform.strip():
        if chosen is None:
            return
        try:
            program, landing = _transformed(transform, program, chosen, system), "transform"
        except ValueError as exc:
            tell((*path, "transform"), str(exc))
            return
    fine = next((step for step in program if step.arrow.startswith("tsn")), None)
    if fine is not None and kind == "parquet":
        tell((*path, landing), f"{fine.path} has nanoseconds, but parquet files keep microseconds")
    check_partitioning((*path[:-1], "sink", "partition_by"), sink.get("partition_by"), program, tell, landing)


def _transformed(text: str, program: "Sequence[Step]", columns: Sequence[str], system: str) -> "tuple[Step, ...]":
    """Return a program with the columns of a transform's result. Raises ValueError."""
    from fastwire.decode.evolution import program_of

    from .rowwise import columns_in, read_transform  # loads DuckDB

    return program_of(columns_in(read_transform(text, program, columns, system)[1]))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _check_registry(path: KeyPath, registry: Mapping[str, Any], tell: Tell) -> None:
    url, auth, tls = registry.get("url"), registry.get("auth"), registry.get("tls")
    try:
        scheme, exposed = (urlsplit(url).scheme, is_exposed(url)) if isinstance(url, str) else ("", False)
    except ValueError:
        return  # reported where it is read
    if isinstance(auth, Mapping):
        check_auth((*path, "auth"), auth, tell)
        if exposed:
            tell((*path, "url"), "must be https://: the credentials would cross the network unencrypted")
    if isinstance(tls, Mapping):
        check_tls((*path, "tls"), tls, tell)
        if scheme == "http":
            tell((*path, "tls"), "needs an encrypted connection: https:// in url")
