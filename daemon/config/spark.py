"""``[spark.NAME]``: a Spark job from a landed dataset or from brokers into a table, and the rules between its keys."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from fastwire.systems import grammar_of

from .access import AuthConfig, EncryptionConfig, TlsConfig
from .connection import auth_model
from .fields import (
    Column,
    Count,
    FolderPath,
    Natural,
    Pattern,
    SomeTime,
    Start,
    Switch,
    Text,
    Topic,
    Url,
    check_compression,
    parse_start,
)
from .table import Table
from .text import KeyPath, format_duration, kind, nearest, parse_duration

__all__ = [
    "SPARK_REQUIRED",
    "SparkConfig",
    "SparkDecode",
    "SparkDedupe",
    "SparkOutput",
    "SparkSource",
    "check_spark",
]

AVAILABLE_NOW = "available-now"
_IN_WORDS = re.compile(r"\s*(\d+(?:\.\d+)?)\s+(second|minute|hour|day)s?\s*")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def _trigger(value: object) -> float | None:
    if value == AVAILABLE_NOW:
        return None
    if not isinstance(value, str):
        raise ValueError(f'must be "{AVAILABLE_NOW}" or a time such as "30s", not {kind(value)}')
    if hint := nearest(value, [AVAILABLE_NOW]):
        raise ValueError(f'must be "{AVAILABLE_NOW}" or a time such as "30s", not "{value}"{hint}')
    return parse_duration(value)


def _lateness(value: object) -> float:
    if isinstance(value, str) and (match := _IN_WORDS.fullmatch(value)):
        value = match[1] + match[2][0]  # Spark's form: "1 hour"
    return parse_duration(value)


def _level(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a column, not {kind(value)}")
    if not _COLUMN.fullmatch(value):
        raise ValueError(f'"{value}" is not a valid folder name: use letters, digits and _ only, a letter first')
    return value


def _format(value: object) -> str:
    if value == "spark-parquet":
        raise ValueError(
            '"spark-parquet" is no longer supported: it duplicated or lost rows when its checkpoint was '
            'deleted. Use "dataset", with a new path and a new checkpoint: it has the same folders, without batch=…'
        )
    if value != "dataset":
        raise ValueError(f'must be "dataset", not {json.dumps(value) if isinstance(value, str) else kind(value)}')
    return "dataset"


def _start(value: object) -> Start:
    if isinstance(value, Mapping):
        raise ValueError('must be "earliest", "latest" or a time such as "2025-01-31T00:00:00Z" for a job')
    return parse_start(value)


Trigger = Annotated[
    float | None,
    PlainValidator(_trigger),
    PlainSerializer(lambda value: AVAILABLE_NOW if value is None else format_duration(value), when_used="json"),
    WithJsonSchema({"type": "string", "examples": [AVAILABLE_NOW, "30s"]}),
]
Lateness = Annotated[
    float,
    PlainValidator(_lateness),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["1 hour", "1h"]}),
]
JobStart = Annotated[
    Start, PlainValidator(_start), PlainSerializer(str, when_used="json"), WithJsonSchema({"type": "string"})
]
OutputFormat = Annotated[str, PlainValidator(_format), WithJsonSchema({"type": "string", "const": "dataset"})]
Level = Annotated[str, PlainValidator(_level), WithJsonSchema({"type": "string", "pattern": f"^{_COLUMN.pattern}$"})]


def _auth_by_url(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> AuthConfig:
    """Validate a table ``auth`` with the model of the system of the URL beside it."""
    grammar = grammar_of(info.data.get("url", ""))
    found: AuthConfig = handler(value) if grammar is None else auth_model(grammar.name).model_validate(value)
    return found


AuthField = Annotated[SerializeAsAny[AuthConfig], WrapValidator(_auth_by_url)]


class SparkSource(Table):
    """The input of the job: a landed dataset, or the brokers."""

    dataset: FolderPath | None = None
    """Folder of a Parquet dataset that the daemon writes."""
    max_files: Count = 100
    """Largest number of files of the dataset that one batch reads."""
    url: Url | None = None
    """Instead of dataset: the brokers, which the executors read in parallel."""
    topics: tuple[Topic, ...] = ()
    """Topics by name; a partitioned topic means all its partitions."""
    topics_pattern: Pattern | None = None
    """Instead of topics: a pattern, which also finds later topics (Pulsar: TENANT/NAMESPACE/REGEX, Kafka: REGEX)."""
    subscription: Text | None = None
    """Pulsar: its cursor keeps unread records. Kafka: the group whose offsets are committed. Alias: `group`."""
    start: JobStart = Start("earliest")
    """First position of the first batch of a new checkpoint."""
    max_records: Count = 5_000_000
    """Approximate largest number of records of one batch."""
    min_partitions: Count | None = None
    """Approximate least number of tasks of a batch; ranges are split to reach it. Default: one for each partition."""
    columns: tuple[Column, ...] | None = None
    """Columns to read, besides those of the record's position. Default: all but headers and the rare ones."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed leaves out records of aborted transactions (Kafka only)."""
    rack: Text | None = None
    """Rack of the executors, as in broker.rack: replicas in this rack are read from (Kafka only)."""
    metadata_max_age: SomeTime = 60.0
    """Interval at which the job asks for new topics and partitions (Kafka only)."""
    on_data_loss: Literal["stop", "continue"] = "stop"
    """Reaction when the brokers have deleted records that the job has not read: stop, or log it and continue."""
    auth: AuthField = AuthConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()
    encryption: EncryptionConfig = EncryptionConfig.model_construct()

    @property
    def system(self) -> str:
        """The name of the message system of ``url``; "" for a dataset."""
        grammar = grammar_of(self.url)
        return "" if grammar is None else grammar.name

    @property
    def access(self) -> dict[str, str]:
        """The keys of auth, tls and encryption as texts, by dotted names; paths are absolute."""
        tables = {"auth": self.auth, "tls": self.tls, "encryption": self.encryption}
        return dict(pair for name, table in tables.items() for pair in _texts(name, table))


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        for name in sorted(value.model_fields_set):
            yield from _texts(f"{path}.{name}", getattr(value, name))
    elif isinstance(value, dict):
        yield (
            path,
            json.dumps({name: os.path.abspath(one) if isinstance(one, Path) else one for name, one in value.items()}),
        )
    elif isinstance(value, Path):
        yield path, os.path.abspath(value)
    elif isinstance(value, SecretStr):
        yield path, value.get_secret_value()
    else:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


class SparkDecode(Table):
    """The decoding of record values."""

    format: Literal["json", "avro", "protobuf", "none"] = "none"
    """Format of the values; none keeps the columns of the input as they are."""
    definition: FolderPath | None = Field(None, alias="schema")
    """json: a file with Spark DDL; avro: an Avro schema; protobuf: a descriptor set (protoc --descriptor_set_out)."""
    message: Text | None = None
    """protobuf: the full name of the message."""
    framing: Literal["none", "confluent"] = "none"
    """avro, protobuf: confluent values begin with a zero byte, the id of a schema, and (protobuf) message indexes."""
    ids: tuple[Natural, ...] = ()
    """confluent: the ids of this schema; a value with another id is a dead letter."""


class SparkDedupe(Table):
    """The recognition of duplicates."""

    key: tuple[Text, ...]
    """Columns that are equal in both copies."""
    watermark: Lateness
    """Longest time between two copies, in time of the records; rows later than that are dropped and counted."""


class SparkOutput(Table):
    """The table that the job writes, and the folders beside it."""

    path: FolderPath
    """Folder of the table."""
    partition_by: tuple[Level, ...] = ()
    """Columns that become folders; date and hour of the record (UTC) are always available."""
    quarantine: FolderPath
    """Folder of the table of dead letters: rows that cannot be decoded, with position and reason."""
    checkpoint: FolderPath
    """Folder of Spark's checkpoint. It belongs to the table: keep both, or delete both."""
    format: OutputFormat = "dataset"
    """dataset: one atomic commit for each batch."""
    compression: Text = "zstd:1"
    """zstd[:1-22] lz4 snappy gzip[:1-9] none."""
    metadata: Switch = True
    """Keep the position and timestamp of decoded rows, in columns that begin with _."""


class SparkConfig(Table):
    """One job on Spark: decode, put dead letters aside, drop duplicates, write."""

    source: SparkSource
    decode: SparkDecode = SparkDecode.model_construct()
    dedupe: SparkDedupe | None = None
    output: SparkOutput
    trigger: Trigger = None
    """available-now ends when the job has read what is there; a time is the interval between two batches."""


SPARK_REQUIRED: Mapping[str, str] = {
    "source": 'is required: { dataset = "/data/orders" } of the daemon, or { url = "pulsar://…", topics = ["…"] }',
    "output": 'is required: { path = "…", quarantine = "…", checkpoint = "…" }',
    "path": "is required: the folder of the table",
    "quarantine": "is required: the folder of the table of dead letters",
    "checkpoint": "is required: a folder for Spark's own progress",
    "key": "is required: the columns that identify a record",
    "watermark": 'is required: how late the second copy may come, such as "1 hour"',
}
_SCHEMAS = {
    "json": "is required: a file with the columns as Spark DDL, such as order_id BIGINT NOT NULL, amount DOUBLE",
    "avro": "is required: a file with the Avro schema of the values (JSON)",
    "protobuf": "is required: a file by protoc --include_imports --descriptor_set_out=FILE",
}

Tell = Callable[[KeyPath, str], None]


def check_spark(jobs: Mapping[str, Any], tell: Tell) -> None:
    """Check the rules between the keys of ``[spark.NAME]``; ``tell`` is called for each mistake."""
    taken: dict[str, str] = {}
    for name, job in jobs.items():
        if not isinstance(job, dict):
            continue
        path: KeyPath = ("spark", name)
        source, decode, output = (_table(job, key) for key in ("source", "decode", "output"))
        if isinstance(job.get("source"), dict):
            _check_source((*path, "source"), source, decode, tell)
        _check_decode((*path, "decode"), decode, tell)
        _check_output((*path, "output"), output, tell)
        _check_folders(path, source, output, taken, tell)
        dedupe = job.get("dedupe")
        if isinstance(dedupe, dict):
            _check_list((*path, "dedupe", "key"), dedupe.get("key"), tell, empty="names no column")


def _table(job: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = job.get(key)
    return table if isinstance(table, dict) else {}


# The keys of a source that need brokers. The other rules are those of a pipeline's source.
_OF_BROKERS = SparkSource.model_fields.keys() - {"dataset", "max_files", "url"} | {"group"}
_BY_FILE = {
    ("token",): "token_file",
    ("password",): "password_file",
    ("oauth2", "client_secret"): "client_secret_file",
}


def _check_source(path: KeyPath, source: Mapping[str, Any], decode: Mapping[str, Any], tell: Tell) -> None:
    if "url" not in source:
        if "dataset" not in source and not _OF_BROKERS & source.keys():
            tell(path, "has neither dataset (the folder of a landed dataset) nor url (the brokers)")
        for key in sorted(_OF_BROKERS & source.keys()):
            tell((*path, key), "is for reading from brokers: url is missing")
        return
    for key in sorted({"dataset", "max_files"} & source.keys()):
        tell((*path, key), "is for reading a landed dataset, but url is given: use one of them")
    for names, instead in _BY_FILE.items():
        value: Any = source.get("auth")
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str) and not value.startswith(("file:", "env:")):
            tell((*path, "auth", *names), f"would be sent to all executors in clear text: use {instead}")
    if "key_password" in _table(source, "tls"):
        tell((*path, "tls", "key_password"), "would be sent to all executors in clear text: use key_password_file")
    columns = source.get("columns")
    if isinstance(columns, list) and "value" not in columns and decode.get("format", "none") != "none":
        tell((*path, "columns"), 'lacks "value", which is decoded')


def _check_decode(path: KeyPath, decode: Mapping[str, Any], tell: Tell) -> None:
    form = decode.get("format", "none")
    if form in _SCHEMAS and "schema" not in decode:
        tell((*path, "schema"), _SCHEMAS[form])
    if form == "none" and "schema" in decode:
        tell((*path, "schema"), 'is for decoded values: format = "json", "avro" or "protobuf" is missing')
    if form == "protobuf" and "message" not in decode:
        tell((*path, "message"), "is required: the full name of the message, such as shop.Order")
    if form != "protobuf" and "message" in decode:
        tell((*path, "message"), "is for protobuf only")
    framing = decode.get("framing", "none")
    if framing == "confluent" and form not in ("avro", "protobuf"):
        tell((*path, "framing"), "is for avro and protobuf only")
    if framing == "confluent" and not decode.get("ids"):
        tell((*path, "ids"), "is required: the ids of this schema in the registry, such as [7]")
    if framing != "confluent" and "ids" in decode:
        tell((*path, "ids"), 'is for framing = "confluent" only')


def _check_output(path: KeyPath, output: Mapping[str, Any], tell: Tell) -> None:
    _check_list((*path, "partition_by"), output.get("partition_by"), tell, empty="")
    compression = output.get("compression")
    if not isinstance(compression, str) or not compression:
        return
    try:
        check_compression("parquet", compression)
    except ValueError as exc:
        tell((*path, "compression"), str(exc))


def _check_list(path: KeyPath, values: object, tell: Tell, *, empty: str) -> None:
    if not isinstance(values, list):
        return
    if not values and empty:
        tell(path, empty)
    for index, value in enumerate(values):
        if value in values[:index]:
            tell((*path, index), f'"{value}" is repeated')


def _check_folders(
    path: KeyPath, source: Mapping[str, Any], output: Mapping[str, Any], taken: dict[str, str], tell: Tell
) -> None:
    """Check that folders are distinct and not nested: readers of one would find the files of the other."""
    folders: dict[str, str] = {}
    given = [(("source", "dataset"), source.get("dataset"))]
    given += [(("output", key), output.get(key)) for key in ("path", "quarantine", "checkpoint")]
    for key, folder in given:
        if not isinstance(folder, str) or not folder:
            continue
        name, real = ".".join(key), os.path.realpath(folder)
        for other, its_name in folders.items():
            if real == other:
                tell((*path, *key), f"is also the folder of {its_name}")
            elif real.startswith(f"{other}/") or other.startswith(f"{real}/"):
                tell((*path, *key), f"is inside {its_name}, or contains it")
        folders[real] = name
        if key[0] == "output":
            owner = f"{name} of job {path[1]}"
            if taken.setdefault(real, owner) != owner:
                tell((*path, *key), f"is also the folder of {taken[real]}")
