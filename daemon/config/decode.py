"""``[pipelines.NAME.decode]``: the decoding of values into columns, and the rules between its keys."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, model_validator

from fastwire.systems import grammar_named, row_of

from .brokers.access import AuthConfig, TlsConfig
from .brokers.connection import Tell
from .brokers.secured import check_auth, check_tls
from .problem import ConfigError, Problem
from .sinks.partitioning import Partitioning, check_partitioning
from .sql.arrowcolumns import KEY, columns_in
from .sql.rowwise import read_transform
from .table import Table
from .values.fields import DATABASE_TYPES, DATASET_TYPES, TABLE_TYPES, TOPIC, FolderPath, RegistryUrl, Text, is_exposed
from .values.text import KeyPath, nearest

if TYPE_CHECKING:
    from fastwire.decode.evolution import Column
    from fastwire.decode.program import Step

__all__ = [
    "DELETED",
    "INFER",
    "KEY",
    "DecodeConfig",
    "KeysConfig",
    "RegistryConfig",
    "check_decode",
    "check_schema",
    "check_transform",
    "chosen_columns",
    "decoded_columns",
    "key_column",
    "named_for",
    "parse_decode",
    "read_key_program",
    "read_program",
    "refuse_uninferable",
]

SINKS = (*DATASET_TYPES, *DATABASE_TYPES, "stdout")
INFER = "infer"
"""Instead of a schema file: the columns are inferred from the values."""
NEEDED = "is required: the file with the schema of the values"
DELETED = "_deleted"
"""Column of files: true in the rows of null values. Such values are bad if the column was not asked for."""


class RegistryConfig(Table):
    """A schema registry with the Confluent API: values begin with a zero byte and the id of their schema in 4 bytes.
    Or, as registry = "pulsar", the brokers, which keep a schema for each record.
    """

    url: RegistryUrl = ""
    """URL of the registry, such as "https://registry.example.com". Required, unless the brokers keep the schemas."""
    system: Text | None = None
    """System whose brokers keep the schemas: "pulsar". The same as registry = "pulsar"."""
    auth: AuthConfig = AuthConfig.model_construct()
    """Login at the registry: a user, a token, or what makes one."""
    tls: TlsConfig = TlsConfig.model_construct()
    """Verification of the registry's certificate, and the client's own certificate."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"system": value} if isinstance(value, str) else value


def _or_a_name(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"type": "string"})


class KeysConfig(Table):
    """The decoding of keys: the column _key has the type of their schema, instead of bytes, and grows by "evolve"."""

    format: Literal["avro", "json"]
    """Format of the keys. avro: the binary encoding of any type, behind the id of its schema if the values have a
    registry with a URL; json: one object. With registry = "pulsar" keys of KEY_VALUE schemas have the schema of their
    version."""
    definition: FolderPath = Field(alias="schema")
    """File with the Avro schema of the keys: a record, or for avro any type, such as "long". It may have "{topic}"."""


class DecodeConfig(Table):
    """The decoding of values: their fields become columns of the files."""

    format: Literal["avro", "json", "protobuf"]
    """Format of the values. avro: the binary encoding of one record, without a header, or with that of a registry.
    json: one object. protobuf: one message, without a header, or with that of a registry."""
    definition: FolderPath | None = Field(None, alias="schema")
    """File with the schema of the columns: an Avro schema in JSON, whose top is a record. Without a registry it is also
    the schema of all values; for json it is the shape of the objects. For protobuf: a descriptor set of protoc.
    "infer", for json: the columns come from the first records, and are kept with the dataset. With "{topic}", beside a
    sink.path that has it: a file for each topic. Not needed with a registry: a new dataset has the columns of the
    topic's newest schema, that of the subject TOPIC-value, or else those of the first record's schema."""
    message: Text | None = None
    """Full name of the message type of protobuf, such as "shop.Order"; not needed if the schema has one alone, or one
    that none of its others contains."""
    registry: RegistryConfig | None = Field(default=None, json_schema_extra=_or_a_name)
    """Schema registry that has the schemas of the values, for avro and protobuf. "pulsar": the brokers of Pulsar, which
    keep the schema of each record, for all formats."""
    evolve: Literal["add", "widen", "strict", "dead_letter"] = "add"
    """Columns of another schema, of values and of decoded keys: add them to the dataset (new ones take nulls, numbers
    become wider); widen: the same, and with schema = "infer" a column of whole numbers becomes one of doubles for a
    fraction, and one of numbers or truth values becomes text for any other value; strict: stop the partition, and
    refuse to start with another schema file; dead_letter: its records become dead letters."""
    columns: tuple[Text, ...] = ("*",)
    """Columns to keep: fields of the values ("*": all), and columns of the records with _ before their name. With
    "_deleted" a null value (a tombstone) becomes a row in which it is true, and the columns of the values are null."""
    maps: tuple[Text, ...] = ()
    """With schema = "infer": objects whose keys are values, such as ids, become maps: "stock", "customer.by_id",
    "lines[].prices"."""
    keys: KeysConfig | None = None
    """Decoding of the keys as well, for the column _key."""
    transform: Text | None = None
    """SQL for each row, such as "SELECT id, amount * 100 AS cents FROM batch WHERE amount > 0". * stands for the
    columns above, and columns of the records are there by name. DuckDB runs it (the extra sql); it must be row-wise."""
    on_error: Literal["dead_letter", "stop"] = "dead_letter"
    """A value that does not match the schema becomes a dead letter in the same commit; or stop its partition."""

    @property
    def inferred(self) -> bool:
        """True if the columns of a new dataset are not configured: they come from the values or their schemas."""
        return self.registered or self.definition == Path(INFER)

    @property
    def registered(self) -> bool:
        """True if the columns of a new dataset come from the schemas that a registry has of the values."""
        return self.definition is None

    @property
    def by_topic(self) -> bool:
        """True if each topic has a schema file of its own."""
        return TOPIC in str(self.definition) or (self.keys is not None and TOPIC in str(self.keys.definition))

    def of_topic(self, name: str) -> "DecodeConfig":
        """Return this with the schema files of the topic whose dataset has this name."""
        changes: dict[str, Any] = {"definition": _of_topic(self.definition, name)}
        if self.keys is not None:
            changes["keys"] = self.keys.model_copy(update={"definition": _of_topic(self.keys.definition, name)})
        return self.model_copy(update=changes)

    def of_every_topic(self, system: str) -> "DecodeConfig":
        """Return this without what depends on the schema of a topic, for all columns of records that one may need."""
        own = columns_of_records(system)
        wanted = own if self.transform is not None else [name for name in self.columns if name in own]
        return self.model_copy(update={"columns": ("*", *wanted), "keys": None, "transform": None})

    @property
    def widens(self) -> bool:
        """True if a column of whole numbers may become one of doubles, and one of numbers or truth values text."""
        return self.evolve == "widen"

    @property
    def evolution(self) -> Literal["add", "strict", "dead_letter"]:
        """The rule for columns of another schema, apart from their types."""
        return "add" if self.evolve == "widen" else self.evolve

    @property
    def by_brokers(self) -> bool:
        """True if the brokers have the schemas of the values."""
        return self.registry is not None and self.registry.system is not None


def _of_topic(path: Path | None, name: str) -> Path | None:
    return None if path is None else Path(str(path).replace(TOPIC, name))


def parse_decode(keys: Mapping[str, Any], system: str = "") -> DecodeConfig:
    """Return the table with these keys, for records of ``system`` if it is known. Raises ConfigError."""
    problems: list[Problem] = []
    try:
        made = DecodeConfig.model_validate(keys)
        if made.definition is None and made.registry is None:
            problems = [Problem("", "decode.schema", NEEDED)]
        if made.registry is not None and made.registry.system is not None and system:
            _check_brokers(
                ("decode", "registry"),
                made.registry.system,
                system,
                lambda path, text: problems.append(Problem("", ".".join(map(str, path)), text)),
            )
        if not problems:
            return made
    except ValidationError as exc:
        problems = [
            Problem(
                "", ".".join(("decode", *map(str, error["loc"]))), str(error.get("ctx", {}).get("error", error["msg"]))
            )
            for error in exc.errors(include_url=False)
        ]
    raise ConfigError(problems)


def read_program(path: Path | None, form: str, message: str | None = None) -> "tuple[Step, ...]":
    """Compile the schema in a file, for values of the format ``form``; ``message`` is a type of Protobuf.

    Columns that are inferred, of a registry, or of a topic that is not named, are unknown: the program has none.

    Raises ValueError with a message for the author of the configuration.
    """
    from fastwire.decode.avro.schema import compile_avro  # few configurations need them
    from fastwire.decode.json.schema import compile_json

    if path is None or str(path) == INFER or TOPIC in str(path):
        from fastwire.decode.json.growth import NO_COLUMNS

        return NO_COLUMNS
    if form == "protobuf":
        return _compiled(path, lambda path: _read_protobuf(path, message or ""))
    return _of_text(path, compile_json if form == "json" else compile_avro)


def read_key_program(path: Path, form: str) -> "tuple[Step, ...]":
    """Compile the schema in a file, for keys of the format ``form``: Avro of any type is the only field of a record.

    Raises ValueError with a message for the author of the configuration.
    """
    from fastwire.decode.avro.schema import compile_avro_field
    from fastwire.decode.json.schema import compile_json

    return _of_text(path, compile_json if form == "json" else partial(compile_avro_field, KEY))


def _of_text(path: Path, compiled: "Callable[[str], tuple[Step, ...]]") -> "tuple[Step, ...]":
    return _compiled(path, lambda path: compiled(path.read_text(encoding="utf-8")))


def _compiled(path: Path, compiled: "Callable[[Path], tuple[Step, ...]]") -> "tuple[Step, ...]":
    from fastwire.decode.program import SchemaError

    try:
        return compiled(path)
    except OSError as exc:
        raise ValueError(f"cannot read {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text") from None
    except SchemaError as exc:
        raise ValueError(f"{path}: {exc}") from None


def _read_protobuf(path: Path, message: str) -> "tuple[Step, ...]":
    from fastwire.decode.protobuf.descriptors import message_of
    from fastwire.decode.protobuf.schema import compile_protobuf

    if path.suffix == ".proto":
        made = path.with_suffix(".desc")
        raise ValueError(
            f"{path} is source: make a descriptor set of it with protoc --include_imports --descriptor_set_out={made} "
            f"{path}, and name that one"
        )
    return compile_protobuf(message_of(path.read_bytes(), message))


def columns_of_records(system: str) -> list[str]:
    """Return the names that columns of records have beside those of decoded values."""
    return [*(f"_{name}" for name in row_of(system).names if name != "value"), DELETED]


def chosen_columns(wanted: Sequence[str], program: "Sequence[Step]", system: str) -> tuple[str, ...]:
    """Return the columns of the files in their order. Raises ValueError for an unknown or repeated name."""
    top = program[0]
    fields = [step.name for step in program[top.first : top.first + top.children]]
    own = columns_of_records(system)
    columns: list[str] = []
    for name in wanted:
        if name != "*" and name not in fields and name not in own:
            if not fields:
                raise ValueError(f'"{name}" is not known before there are records: "*" stands for all fields')
            raise ValueError(
                f'"{name}" is neither a field of the schema nor a column of the records{nearest(name, [*fields, *own])}'
            )
        if name in fields and name in own:
            raise ValueError(f'"{name}" is a field of the schema and a column of the records: leave it out')
        columns += [each for each in fields if each not in wanted] if name == "*" else [name]
    if repeated := sorted({name for name in columns if columns.count(name) > 1}):
        raise ValueError(f'"{repeated[0]}" is repeated')
    return tuple(columns)


def check_decode(
    path: KeyPath, decode: Mapping[str, Any], sink: Mapping[str, Any], system: str, tell: Tell, start: object = None
) -> None:
    """Check the keys beside those of the sink, and the schema; report each problem to ``tell``.

    ``start`` is that of the source.
    """
    _check_kind(path, sink, tell)
    if "columns" in sink:
        tell((*path[:-1], "sink", "columns"), "decode.columns chooses the columns of a pipeline that decodes values")
    form = decode.get("format")
    if "message" in decode and form != "protobuf":
        tell((*path, "message"), 'is for format = "protobuf"')
    registry = decode.get("registry")
    if isinstance(registry, Mapping) and "system" not in registry:
        if form == "json":
            tell((*path, "registry"), 'with a URL is for format = "avro" and "protobuf"')
        else:
            _check_registry((*path, "registry"), registry, tell)
    elif isinstance(registry, Mapping | str) and system:
        _check_brokers((*path, "registry"), registry, system, tell)
    if unknown := "schema" not in decode and registry is None:
        tell((*path, "schema"), NEEDED)
    sound = not unknown and _fits_schema(path, decode, sink, start, tell)
    if not _by_topic(path, decode, sink, tell):
        _check_columns(path, decode, sink, system, tell, sound=sound)


def _check_columns(
    path: KeyPath, decode: Mapping[str, Any], sink: Mapping[str, Any], system: str, tell: Tell, *, sound: bool = True
) -> None:
    """Check the schema files and what is made of them, the schema of the values only if its key is ``sound``."""
    schema, columns = decode.get("schema"), decode.get("columns", ["*"])
    key = None
    if isinstance(decode.get("keys"), Mapping):
        key = _checked_keys((*path, "keys"), decode["keys"], columns, tell)
    if not sound or not isinstance(schema, str | None) or (schema is not None and not schema.strip()):
        return
    try:
        file = None if schema is None else Path(schema)
        program = read_program(file, str(decode.get("format")), _text(decode.get("message")))
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
            named = named_for(transform, program, key, chosen, system)
            program = _result_of(transform, decoded_columns(named, key), chosen, system)
            landing = "transform"
        except ValueError as exc:
            tell((*path, "transform"), str(exc))
            return
    _check_landing(path[:-1], (*path, landing), program, sink, tell)


def _fits_schema(path: KeyPath, decode: Mapping[str, Any], sink: Mapping[str, Any], start: object, tell: Tell) -> bool:
    """Report keys that do not fit beside a schema, whatever it says. Return False if its columns cannot be known."""
    schema = decode.get("schema")
    if schema is not None and (not isinstance(schema, str) or not schema.strip()):
        return True
    if schema != INFER and decode.get("maps"):
        tell((*path, "maps"), f'is for schema = "{INFER}": a schema says itself which fields are maps')
    if decode.get("evolve") == "widen" and (schema != INFER or sink.get("type") in (*TABLE_TYPES, *DATABASE_TYPES)):
        why = "a table keeps the types of its columns" if schema == INFER else "a schema says the types itself"
        tell((*path, "evolve"), f'"widen" is for schema = "{INFER}" into files: {why}')
    return schema not in (INFER, None) or _can_infer(path, decode, sink, start, tell)


def _by_topic(path: KeyPath, decode: Mapping[str, Any], sink: Mapping[str, Any], tell: Tell) -> bool:
    """Return True if the schema is that of a topic, which is looked at with the topic."""
    of_keys = decode["keys"].get("schema") if isinstance(decode.get("keys"), Mapping) else None
    found = False
    for key, schema in ((("schema",), decode.get("schema")), (("keys", "schema"), of_keys)):
        if isinstance(schema, str) and TOPIC in schema:
            found = True
            if TOPIC not in str(sink.get("path")):
                tell((*path, *key), f'has "{TOPIC}", so sink.path must have it, too: a schema for each dataset')
    return found


def check_schema(decode: DecodeConfig, kind: str, by: Partitioning, system: str, tell: Tell) -> None:
    """Check the schema files of a topic for its sink of this ``kind``, as ``check_decode`` those of all topics."""
    keys = decode.model_dump(
        mode="json", by_alias=True, include={"format", "definition", "message", "transform", "keys"}
    )
    given = {name: value for name, value in keys.items() if value is not None}
    sink = {"type": kind, "partition_by": by}
    _check_columns(("decode",), given | {"columns": list(decode.columns)}, sink, system, tell)


def _uninferable(decode: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the keys that need columns before the first record is there, each with the reason."""
    wrong = []
    without = f'schema = "{INFER}"' if "schema" in decode else "a registry without a schema file"
    if "schema" in decode and decode.get("format") != "json":
        wrong.append(("schema", f'"{INFER}" is for format = "json": values of other formats need their schema'))
    if "schema" in decode and decode.get("registry") is not None:
        wrong.append(("registry", f'has the schemas of the values, so leave out schema = "{INFER}"'))
    if decode.get("transform") is not None:
        wrong.append(("transform", f"needs columns that are known: {without} has none before the first record"))
    columns = decode.get("columns", ["*"])
    if isinstance(columns, list | tuple) and "*" not in columns:
        wrong.append(("columns", f'must have "*" beside {without}: the fields come with the records'))
    return wrong


def refuse_uninferable(decode: DecodeConfig) -> None:
    """Raise ConfigError if the columns are to be inferred, and other keys need them before."""
    if not decode.inferred:
        return
    wrong = _uninferable(vars(decode) | ({} if decode.registered else {"schema": INFER}))
    if decode.registered and decode.registry is None:
        wrong.append(("schema", NEEDED))
    if wrong:
        raise ConfigError([Problem("", f"decode.{key}", message) for key, message in wrong])


def _can_infer(path: KeyPath, decode: Mapping[str, Any], sink: Mapping[str, Any], start: object, tell: Tell) -> bool:
    """Report the keys that need columns before the first record is there. Return False if there are any."""
    wrong = _uninferable(decode)
    kind = sink.get("type")
    if sink.get("envelope") not in (None, "none"):
        wrong.append(("schema", "is a file for an envelope, whose columns are known before the first record"))
    if sink.get("mode") == "upsert" and start == "latest":
        why = "the first records, which have the columns of the key, are before their first position"
        wrong.append(("schema", f'is a file for mode = "upsert" and start = "latest": {why}'))
    columns = decode.get("columns", ["*"])
    if start == "latest" and isinstance(columns, list) and {*columns} == {"*"} and kind != "stdout":
        why = "the pipeline would wait for a first record, begin behind it, and not land it"
        wrong.append(("columns", f'needs a column of the records, such as "_offset", with start = "latest": {why}'))
    for key, message in wrong:
        tell((*path, key), message)
    return not wrong


def check_transform(path: KeyPath, text: object, sink: Mapping[str, Any], system: str, tell: Tell) -> None:
    """Check the query of the pipeline ``path`` over records as they are, beside its sink; report to ``tell``."""
    key = (*path, "transform")
    _check_kind(key, sink, tell)
    if not isinstance(text, str) or not text.strip() or not system:
        return
    names, columns = row_of(system).names, sink.get("columns")
    chosen = [name for name in names if not isinstance(columns, list) or name in columns]
    try:
        program = _result_of(text, None, chosen, system)
    except ValueError as exc:
        tell(key, str(exc))
        return
    _check_landing(path, key, program, sink, tell)


def _check_kind(path: KeyPath, sink: Mapping[str, Any], tell: Tell) -> None:
    kind = sink.get("type")
    if isinstance(kind, str) and kind not in SINKS:
        tell(path, f"is for the sinks {', '.join(SINKS)}, not for {kind}")


def _result_of(
    text: str, decoded: "Sequence[Column] | None", columns: Sequence[str], system: str
) -> "tuple[Step, ...]":
    """Return a program with the columns of a transform's result. Raises ValueError."""
    from fastwire.decode.evolution import program_of

    return program_of(columns_in(read_transform(text, decoded, columns, system)[1]))


def named_for(
    text: str, program: "Sequence[Step]", key: "Column | None", columns: Sequence[str], system: str
) -> "Sequence[Step]":
    """Return ``program`` with the names of unions that the query ``text`` has.

    A query may be of the time when the members of unions were ``member0``, ``member1`` …
    """
    from fastwire.decode.branches import numbered

    older = numbered(program)
    if older != tuple(program) and "member" in text:
        for each in (program, older):
            try:
                read_transform(text, decoded_columns(each, key), columns, system)
            except ValueError:
                continue
            return each
    return program


def _check_landing(
    pipeline: KeyPath, key: KeyPath, program: "Sequence[Step]", sink: Mapping[str, Any], tell: Tell
) -> None:
    """Check the columns of ``program``, which the ``key`` of the ``pipeline`` has made, for the sink."""
    fine = next((step for step in program if step.arrow.startswith("tsn")), None)
    if fine is not None and sink.get("type") in ("parquet", *TABLE_TYPES):
        tell(key, f"{fine.path} has nanoseconds, but parquet files keep microseconds")
    elif fine is not None and sink.get("type") in DATABASE_TYPES:
        tell(key, f"{fine.path} has nanoseconds, but the table keeps microseconds")
    check_partitioning((*pipeline, "sink", "partition_by"), sink.get("partition_by"), program, tell, str(key[-1]))


def decoded_columns(program: "Sequence[Step]", key: "Column | None" = None) -> "tuple[Column, ...]":
    """Return the columns of decoded values, and that of decoded keys."""
    from fastwire.decode.evolution import columns_of

    return (*columns_of(program), *([] if key is None else [key]))


def key_column(program: "Sequence[Step]", form: str) -> "Column":
    """Return the column of keys that ``program`` decodes, one of ``read_key_program``."""
    from fastwire.decode.evolution import Column, columns_of
    from fastwire.decode.program import deletable

    fields = columns_of(deletable(program))
    return fields[0] if form == "avro" else Column(KEY, "+s", True, fields)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _checked_keys(path: KeyPath, keys: Mapping[str, Any], columns: object, tell: Tell) -> "Column | None":
    """Report problems of ``keys``; return the column of keys, None if it is not known."""
    if isinstance(columns, list) and KEY not in columns:
        tell(path, f'decodes the column {KEY}: add "{KEY}" to columns')
    definition = keys.get("schema")
    if definition is None:
        tell((*path, "schema"), "is required: the file with the schema of the keys")
    elif isinstance(definition, str) and definition.strip():
        try:
            form = str(keys.get("format"))
            return key_column(read_key_program(Path(definition), form), form)
        except ValueError as exc:
            tell((*path, "schema"), str(exc))
    return None


def _check_brokers(path: KeyPath, registry: Mapping[str, Any] | str, system: str, tell: Tell) -> None:
    """Check a registry that is the system of the source, whose brokers keep the schemas."""
    if isinstance(registry, Mapping) and len(registry) > 1:
        tell(path, f'has other keys beside system: the brokers need none, so registry = "{system}" is enough')
        return
    named = registry["system"] if isinstance(registry, Mapping) else registry
    if not grammar_named(system).keeps_schemas:
        title = grammar_named(system).title
        tell(path, f'brokers of {title} keep no schemas: name a registry by {{ url = "https://registry.example.com" }}')
    elif named != system:
        tell(path, f'must be "{system}", its brokers, or a registry such as {{ url = "https://registry.example.com" }}')


def _check_registry(path: KeyPath, registry: Mapping[str, Any], tell: Tell) -> None:
    url, auth, tls = registry.get("url"), registry.get("auth"), registry.get("tls")
    if url is None:
        tell((*path, "url"), 'is required: the registry, such as "https://registry.example.com"')
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
