"""``[spark.NAME]``: a Spark job from a landed dataset or from brokers into a table, and the rules between its keys."""

import json
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from fastwire.systems import grammar_of, grammars

from .brokers.connection import Tell, keys_of_systems
from .brokers.sparksource import SparkBrokers, SparkDataset, SparkSourceField, brokers_model, spark_source_model
from .sinks.catalog import CatalogConfig, check_catalog
from .sinks.store import SCHEMES, DatasetPath, StoreConfig, check_store
from .table import Table
from .values.fields import TABLE_TYPES, FolderPath, Switch, Text, WireNatural, check_compression
from .values.text import KeyPath, format_duration, kind, nearest, parse_duration

AVAILABLE_NOW = "available-now"
_IN_WORDS = re.compile(r"\s*(\d+(?:\.\d+)?)\s+(second|minute|hour|day)s?\s*")
_FORMATS = ("parquet", *TABLE_TYPES)
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
            'deleted. Use "parquet", with a new path and a new checkpoint: it has the same folders, without batch=…'
        )
    if value == "dataset":
        raise ValueError('"dataset" is called "parquet" now; the table and the checkpoint stay as they are')
    if not isinstance(value, str) or value not in _FORMATS:
        given = json.dumps(value) if isinstance(value, str) else kind(value)
        hint = nearest(value, _FORMATS) if isinstance(value, str) else ""
        raise ValueError(f'must be "parquet", "delta" or "iceberg", not {given}{hint}')
    return value


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
OutputFormat = Annotated[str, PlainValidator(_format), WithJsonSchema({"type": "string", "enum": list(_FORMATS)})]
Level = Annotated[str, PlainValidator(_level), WithJsonSchema({"type": "string", "pattern": f"^{_COLUMN.pattern}$"})]


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
    ids: tuple[WireNatural, ...] = ()
    """confluent: the ids of this schema; a value with another id is a dead letter."""


class SparkDedupe(Table):
    """The recognition of duplicates."""

    key: tuple[Text, ...]
    """Columns that are equal in both copies."""
    watermark: Lateness
    """Longest time between two copies, in time of the records; rows later than that are dropped and counted."""


class SparkOutput(Table):
    """The table that the job writes, and the folders beside it."""

    path: DatasetPath
    """Folder of the table, or its URL in an object store."""
    store: StoreConfig | None = None
    partition_by: tuple[Level, ...] = ()
    """Columns that become folders; date and hour of the record (UTC) are always available."""
    dead_letters: FolderPath
    """Folder of the table of dead letters: rows that cannot be decoded, with position and reason."""
    checkpoint: FolderPath
    """Folder of Spark's checkpoint. It belongs to the table: keep both, or delete both."""
    format: OutputFormat = "parquet"
    """parquet, or a table of Parquet files: delta, iceberg. Each batch is one atomic commit."""
    catalog: CatalogConfig | None = None
    table: Text | None = None
    """iceberg: the table in the catalog, with its namespace: "shop.orders"."""
    branch: Text | None = None
    """iceberg: the branch of the table that gets the files, made from main if it is missing; default: main."""
    compression: Text = "zstd:1"
    """zstd[:1-22] lz4 snappy gzip[:1-9] none."""
    metadata: Switch = True
    """Keep the position and timestamp of decoded rows, in columns that begin with _."""

    @property
    def table_format(self) -> str:
        """The format of the table in which the files are published; "" for none."""
        return self.format if self.format in TABLE_TYPES else ""


class SparkConfig(Table):
    """One job on Spark: decode, put dead letters aside, drop duplicates, write."""

    source: SparkSourceField
    decode: SparkDecode = SparkDecode.model_construct()
    dedupe: SparkDedupe | None = None
    output: SparkOutput
    trigger: Trigger = None
    """available-now ends when the job has read what is there; a time is the interval between two batches."""


SPARK_REQUIRED: Mapping[str, str] = {
    "source": 'is required: { dataset = "/data/orders" } of the daemon, or '
    f'{{ url = "{grammars()[0].url_example}", topics = ["…"] }}',
    "dataset": "is required: the folder of a landed dataset; or url, the brokers",
    "output": 'is required: { path = "…", dead_letters = "…", checkpoint = "…" }',
    "path": "is required: the folder of the table",
    "dead_letters": "is required: the folder of the table of dead letters",
    "checkpoint": "is required: a folder for Spark's own progress",
    "key": "is required: the columns that identify a record",
    "watermark": 'is required: how late the second copy may come, such as "1 hour"',
}
_SCHEMAS = {
    "json": "is required: a file with the columns as Spark DDL, such as order_id BIGINT NOT NULL, amount DOUBLE",
    "avro": "is required: a file with the Avro schema of the values (JSON)",
    "protobuf": "is required: a file by protoc --include_imports --descriptor_set_out=FILE",
}


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
        for key, place in (("source.dataset", source.get("dataset")), ("output.path", output.get("path"))):
            if isinstance(place, str) and "{topic}" in place:
                why = 'has "{topic}": a job has one dataset; give it that of one topic, and each further topic a job'
                tell((*path, *key.split(".")), why)
        dedupe = job.get("dedupe")
        if isinstance(dedupe, dict):
            _check_list((*path, "dedupe", "key"), dedupe.get("key"), tell, empty="names no column")


def _table(job: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = job.get(key)
    return table if isinstance(table, dict) else {}


_SECRET = {"secret_access_key", "session_token", "account_key"}
# The rules of a source that needs brokers are those of a pipeline's source, and these.
_OF_DATASET = SparkDataset.model_fields.keys()
_BY_FILE = {
    ("token",): "token_file",
    ("password",): "password_file",
    ("oauth2", "client_secret"): "client_secret_file",
}


def _check_source(path: KeyPath, source: Mapping[str, Any], decode: Mapping[str, Any], tell: Tell) -> None:
    if spark_source_model(source) is SparkDataset:
        for key in sorted(keys_of_systems(brokers_model) & source.keys()):
            tell((*path, key), "is for reading from brokers: url is missing")
        return
    grammar = grammar_of(source.get("url", ""))
    if grammar is not None and brokers_model(grammar.name) is SparkBrokers:
        tell((*path, "url"), f"jobs do not read {grammar.title}: land its records as a dataset, and read that")
    for key in sorted(_OF_DATASET & source.keys()):
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
    check_catalog(path, output, tell, "format")
    check_store(path, output, tell)
    for key in _SECRET.intersection(_table(output, "store")):
        tell(
            (*path, "store", key), "would be sent to all executors in clear text: give it to them by their environment"
        )
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
    given += [(("output", key), output.get(key)) for key in ("path", "dead_letters", "checkpoint")]
    for key, folder in given:
        if not isinstance(folder, str) or not folder:
            continue
        name, real = ".".join(key), folder.rstrip("/") if folder.startswith(SCHEMES) else os.path.realpath(folder)
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
