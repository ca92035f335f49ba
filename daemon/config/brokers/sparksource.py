"""``[spark.NAME.source]``: the input of a Spark job, which is a landed dataset or topics of brokers."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from fastwire.systems import grammar_of

from ..table import Table
from ..values.fields import Column, Count, FolderPath, Rows, SomeTime, Start, Text, parse_start
from ..values.text import KeyPath
from .connection import Tell, keys_of_systems, model_for, model_of
from .source import Reading


def _start(value: object) -> Start:
    if isinstance(value, Mapping):
        raise ValueError('must be "earliest", "latest" or a time such as "2025-01-31T00:00:00Z" for a job')
    return parse_start(value)


JobStart = Annotated[
    Start, PlainValidator(_start), PlainSerializer(str, when_used="json"), WithJsonSchema({"type": "string"})
]


class SparkDataset(Table):
    """The input of a job: a dataset that the daemon writes."""

    dataset: FolderPath
    """Folder of a Parquet dataset that the daemon writes."""
    max_files: Count = 100
    """Maximum number of dataset files that one batch reads."""


class SparkBrokers(Reading):
    """The input of a job: topics of brokers, which the executors read in parallel."""

    start: JobStart = Start("earliest")
    """First position of the first batch of a new checkpoint."""
    max_records: Rows = 5_000_000
    """Approximate largest number of records of one batch."""
    min_partitions: Count | None = None
    """Approximate least number of tasks of a batch; ranges are split to reach it. Default: one for each partition."""
    columns: tuple[Column, ...] | None = None
    """Columns to read, besides those of the record's position. Default: all but headers and the rare ones."""
    metadata_max_age: SomeTime = 60.0
    """Interval at which the job asks for new topics and partitions."""
    on_data_loss: Literal["stop", "continue"] = "stop"
    """Reaction when the brokers have deleted records that the job has not read: stop, or log it and continue."""

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report a system whose brokers a job cannot read."""
        super().check(path, table, tell)
        if cls.unranged:
            tell((*path, "url"), cls.unranged)

    @property
    def group(self) -> str | None:
        """The name under which the brokers keep the progress of the job; None if they keep none."""
        return None

    @property
    def access(self) -> dict[str, str]:
        """The keys of the tables, such as auth and tls, as texts by dotted names; paths are absolute."""
        tables = ((name, getattr(self, name)) for name in sorted(self.model_fields_set))
        return dict(pair for name, table in tables if isinstance(table, Table) for pair in _texts(name, table))


class SubscribedBrokers(SparkBrokers):
    """The input of a job: topics of brokers that keep the progress of consumers under a name."""

    aliases: ClassVar[Mapping[str, str]] = {"group": "subscription"}

    subscription: Text | None = None
    """Name of the subscription or consumer group that follows the job's progress; `group` is an alias."""

    @property
    def group(self) -> str | None:
        """The name under which the brokers keep the progress of the job; None if they keep none."""
        return self.subscription


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


SparkSource = SparkDataset | SparkBrokers


def brokers_model(system: str) -> type[SparkBrokers]:
    """Return the model of the input of jobs that read a system's brokers."""
    return model_of(system, "SPARK", SparkBrokers)


def spark_source_model(table: Mapping[str, Any]) -> type[SparkDataset | SparkBrokers]:
    """Return the model for a table as written in a file: of brokers by ``url``, without it by the other keys."""
    if "url" in table or ("dataset" not in table and table.keys() & keys_of_systems(brokers_model)):
        return model_for(table, brokers_model)
    return SparkDataset


def _by_keys(value: Any, handler: ValidatorFunctionWrapHandler) -> SparkSource:
    if not isinstance(value, dict):
        found: SparkSource = handler(value)
        return found
    return spark_source_model(value).model_validate(value, context={"grammar": grammar_of(value.get("url", ""))})


SparkSourceField = Annotated[SerializeAsAny[SparkSource], WrapValidator(_by_keys)]
