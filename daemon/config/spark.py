"""``[spark.NAME]``: a job on Spark from a landed dataset or from brokers into a table; what must hold between keys."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainSerializer, PlainValidator, SecretStr, WithJsonSchema

from .access import AuthConfig, EncryptionConfig, TlsConfig
from .fields import (
    Column,
    Count,
    FolderPath,
    Natural,
    Pattern,
    Start,
    Switch,
    Text,
    Topic,
    Url,
    check_compression,
    parse_start,
)
from .systems import system_of
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
        value = match[1] + match[2][0]  # as Spark has it: "1 hour"
    return parse_duration(value)


def _level(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a column, not {kind(value)}")
    if not _COLUMN.fullmatch(value):
        raise ValueError(f'"{value}" cannot name a folder: letters, digits and _ only, a letter first')
    return value


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
Level = Annotated[str, PlainValidator(_level), WithJsonSchema({"type": "string", "pattern": f"^{_COLUMN.pattern}$"})]


class SparkSource(Table):
    """Where the job reads: a dataset that has landed, or the brokers themselves."""

    dataset: FolderPath | None = None
    """The folder of a Parquet dataset that the daemon lands."""
    max_files: Count = 100
    """Most files of the dataset that one batch reads."""
    url: Url | None = None
    """Instead of a dataset: the brokers, which Spark's executors read in parallel."""
    topics: tuple[Topic, ...] = ()
    """Topics by name; a partitioned topic stands for all its partitions."""
    topics_pattern: Pattern | None = None
    """Instead of topics: those whose names match (Pulsar: of one namespace), also those that come later."""
    subscription: Text | None = None
    """By its cursor the brokers keep what the job has not read; without it retention decides. `group` is an alias."""
    start: JobStart = Start("earliest")
    """Where the first batch of a new checkpoint begins."""
    max_records: Count = 5_000_000
    """About how many records one batch reads at most."""
    min_partitions: Count | None = None
    """Ranges of topics are split until a batch has about so many tasks."""
    columns: tuple[Column, ...] | None = None
    """Columns to read; what says where a record is comes in any case. By default all but headers and rare ones."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of aborted transactions are left out (Kafka only)."""
    on_data_loss: Literal["stop", "continue"] = "stop"
    """What to do when the brokers have deleted what the job has not read: end, or log it and go on."""
    auth: AuthConfig = AuthConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()
    encryption: EncryptionConfig = EncryptionConfig.model_construct()

    @property
    def system(self) -> str:
        """The message system that ``url`` leads to; "" for a dataset."""
        return "" if self.url is None else system_of(self.url).name

    @property
    def access(self) -> dict[str, str]:
        """What stands in auth, tls and encryption, by dotted names, as texts; paths are absolute."""
        tables = {"auth": self.auth, "tls": self.tls, "encryption": self.encryption}
        return dict(pair for name, table in tables.items() for pair in _texts(name, table))


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        for name in sorted(value.model_fields_set):
            yield from _texts(f"{path}.{name}", getattr(value, name))
    elif isinstance(value, dict):
        yield path, json.dumps({name: os.path.abspath(file) for name, file in value.items()})
    elif isinstance(value, Path):
        yield path, os.path.abspath(value)
    elif isinstance(value, SecretStr):
        yield path, value.get_secret_value()
    else:
        yield path, str(value).lower() if isinstance(value, bool) else str(value)


class SparkDecode(Table):
    """What becomes of the value of a record."""

    format: Literal["json", "avro", "protobuf", "none"] = "none"
    """none keeps the columns of the dataset as they are."""
    definition: FolderPath | None = Field(None, alias="schema")
    """json: a file with Spark DDL; avro: an Avro schema; protobuf: a descriptor set (protoc --descriptor_set_out)."""
    message: Text | None = None
    """protobuf: the full name of the message."""
    framing: Literal["none", "confluent"] = "none"
    """avro, protobuf: confluent values begin with a zero byte and the id of a schema."""
    ids: tuple[Natural, ...] = ()
    """confluent: the ids that stand for this schema; values with another one are quarantined."""


class SparkDedupe(Table):
    """How records that a producer has sent twice are told."""

    key: tuple[Text, ...]
    """Columns that are the same in both."""
    watermark: Lateness
    """How long after the first the second may come, in time of the records; what is older than that is dropped."""


class SparkOutput(Table):
    """The table that the job writes."""

    path: FolderPath
    """Its folder."""
    partition_by: tuple[Level, ...] = ()
    """Columns that become folders; date and hour of the record (UTC) can always be had."""
    quarantine: FolderPath
    """The folder of a table of bad rows, with position and reason."""
    checkpoint: FolderPath
    """Spark's own folder for its progress. It belongs to this table: they are kept, or deleted, together."""
    format: Literal["dataset", "spark-parquet"] = "dataset"
    """dataset: one atomic commit a batch; spark-parquet: Spark's writer, one folder a batch, replaced as a whole."""
    compression: Text = "zstd:1"
    """zstd[:1-22] lz4 snappy gzip[:1-9] none; for Spark's writer without a level."""
    metadata: Switch = True
    """Whether decoded rows keep where they come from, in columns that begin with _."""


class SparkConfig(Table):
    """One job on Spark: decode, quarantine, dedupe, write."""

    source: SparkSource
    decode: SparkDecode = SparkDecode.model_construct()
    dedupe: SparkDedupe | None = None
    output: SparkOutput
    trigger: Trigger = None
    """available-now ends when everything that is there is read; a time is the pause between two batches."""


SPARK_REQUIRED: Mapping[str, str] = {
    "source": 'is required: { dataset = "/data/orders" } of the daemon, or { url = "pulsar://…", topics = ["…"] }',
    "output": 'is required: { path = "…", quarantine = "…", checkpoint = "…" }',
    "path": "is required: the folder of the table",
    "quarantine": "is required: the folder of the table of bad rows",
    "checkpoint": "is required: a folder for Spark's own progress",
    "key": "is required: the columns that tell a record from all others",
    "watermark": 'is required: how late the second copy may come, such as "1 hour"',
}
_SCHEMAS = {
    "json": "is required: a file with the columns as Spark DDL, such as order_id BIGINT NOT NULL, amount DOUBLE",
    "avro": "is required: a file with the Avro schema of the values (JSON)",
    "protobuf": "is required: a file by protoc --include_imports --descriptor_set_out=FILE",
}

Tell = Callable[[KeyPath, str], None]


def check_spark(jobs: Mapping[str, Any], tell: Tell) -> None:
    """Look at what belongs together in the tables of ``[spark.NAME]``; ``tell`` is called for each mistake."""
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


# Of a source: what is about brokers. The rest of it is looked at as in a pipeline.
_OF_BROKERS = SparkSource.model_fields.keys() - {"dataset", "max_files", "url"} | {"group"}
_BY_FILE = {
    ("token",): "token_file",
    ("password",): "password_file",
    ("oauth2", "client_secret"): "client_secret_file",
}


def _check_source(path: KeyPath, source: Mapping[str, Any], decode: Mapping[str, Any], tell: Tell) -> None:
    if "url" not in source:
        if "dataset" not in source and not _OF_BROKERS & source.keys():
            tell(path, "holds neither dataset, the folder of a dataset that the daemon lands, nor url, the brokers")
        for key in sorted(_OF_BROKERS & source.keys()):
            tell((*path, key), "is about brokers: url is missing")
        return
    for key in sorted({"dataset", "max_files"} & source.keys()):
        tell((*path, key), "is about what has landed, and url stands here: the brokers are read directly")
    for names, instead in _BY_FILE.items():
        value: Any = source.get("auth")
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str) and not value.startswith(("file:", "env:")):
            tell((*path, "auth", *names), f"would travel to all executors in clear text: use {instead}")
    columns = source.get("columns")
    if isinstance(columns, list) and "value" not in columns and decode.get("format", "none") != "none":
        tell((*path, "columns"), 'lacks "value", which is decoded')


def _check_decode(path: KeyPath, decode: Mapping[str, Any], tell: Tell) -> None:
    form = decode.get("format", "none")
    if form in _SCHEMAS and "schema" not in decode:
        tell((*path, "schema"), _SCHEMAS[form])
    if form == "none" and "schema" in decode:
        tell((*path, "schema"), 'is for values that are decoded: format = "json", "avro" or "protobuf" is missing')
    if form == "protobuf" and "message" not in decode:
        tell((*path, "message"), "is required: the full name of the message, such as shop.Order")
    if form != "protobuf" and "message" in decode:
        tell((*path, "message"), "is for protobuf only")
    framing = decode.get("framing", "none")
    if framing == "confluent" and form not in ("avro", "protobuf"):
        tell((*path, "framing"), "is for avro and protobuf only")
    if framing == "confluent" and not decode.get("ids"):
        tell((*path, "ids"), "is required: the ids that the registry has given to this schema, such as [7]")
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
        return
    if output.get("format") == "spark-parquet" and ":" in compression:
        tell((*path, "compression"), f'Spark\'s writer takes no level: write "{compression.partition(":")[0]}"')


def _check_list(path: KeyPath, values: object, tell: Tell, *, empty: str) -> None:
    if not isinstance(values, list):
        return
    if not values and empty:
        tell(path, empty)
    for index, value in enumerate(values):
        if value in values[:index]:
            tell((*path, index), f'"{value}" stands here twice')


def _check_folders(
    path: KeyPath, source: Mapping[str, Any], output: Mapping[str, Any], taken: dict[str, str], tell: Tell
) -> None:
    """Each folder has one owner, and none lies within another: readers would find the files of both."""
    folders: dict[str, str] = {}
    given = [(("source", "dataset"), source.get("dataset"))]
    given += [(("output", key), output.get(key)) for key in ("path", "quarantine", "checkpoint")]
    for key, folder in given:
        if not isinstance(folder, str) or not folder:
            continue
        name, real = ".".join(key), os.path.realpath(folder)
        for other, its_name in folders.items():
            if real == other:
                tell((*path, *key), f"is the folder of {its_name}, too")
            elif real.startswith(f"{other}/") or other.startswith(f"{real}/"):
                tell((*path, *key), f"lies inside of {its_name}, or around it")
        folders[real] = name
        if key[0] == "output":
            owner = f"{name} of job {path[1]}"
            if taken.setdefault(real, owner) != owner:
                tell((*path, *key), f"is the folder of {taken[real]}, too")
