"""``[spark.NAME]``: a job on Spark from a landed dataset into a table, and what must hold between its keys."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from .fields import Count, FolderPath, Natural, Switch, Text, check_compression
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
Level = Annotated[str, PlainValidator(_level), WithJsonSchema({"type": "string", "pattern": f"^{_COLUMN.pattern}$"})]


class SparkSource(Table):
    """Where the job reads."""

    dataset: FolderPath
    """The folder of a Parquet dataset that the daemon lands."""
    max_files: Count = 100
    """Most files that one batch reads."""


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
    """available-now ends when everything landed is read; a time is the pause between two batches."""


SPARK_REQUIRED: Mapping[str, str] = {
    "source": 'is required: the landed dataset, such as { dataset = "/data/orders" }',
    "dataset": "is required: the folder of a dataset that the daemon lands",
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
        _check_decode((*path, "decode"), decode, tell)
        _check_output((*path, "output"), output, tell)
        _check_folders(path, source, output, taken, tell)
        dedupe = job.get("dedupe")
        if isinstance(dedupe, dict):
            _check_list((*path, "dedupe", "key"), dedupe.get("key"), tell, empty="names no column")


def _table(job: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = job.get(key)
    return table if isinstance(table, dict) else {}


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
