"""The model of a configuration: tables, keys, defaults and descriptions."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from pydantic.json_schema import SkipJsonSchema

from fastwire.systems import grammar_named

from .brokers.source import ConnectionField, Reading, SourceConfig, SourceField
from .brokers.sparksource import SparkBrokers
from .decode import DecodeConfig
from .problem import Problem
from .sinks.catalog import CatalogConfig
from .sinks.database import DatabaseUrl
from .sinks.partitioning import UNPARTITIONED, PartitioningField
from .sinks.store import DatasetPath, StoreConfig
from .spark import SparkConfig
from .table import Table
from .values.address import HttpAddress
from .values.fields import (
    TABLE_TYPES,
    TOPIC,
    Column,
    Count,
    Duration,
    Http,
    PageUrl,
    Password,
    Rows,
    Size,
    SomeSize,
    SomeTime,
    Switch,
    Text,
    sink_kind,
)
from .values.machine import available_memory

__all__ = ["Config", "DaemonConfig", "Landing", "PipelineConfig", "RollConfig", "SinkConfig", "SourceConfig"]

TRANSACTION_AGE_S = 1.0


class DaemonConfig(Table):
    """The process as a whole."""

    memory: Size = Field(default_factory=lambda: available_memory() // 4)
    """Byte budget for records in flight in this process; default: a quarter of the memory of the machine or cgroup."""
    http: Http = HttpAddress("127.0.0.1", 8650)
    """Address of the HTTP server (/, /metrics /livez /readyz /status); "" for none, "unix:/path" for a Unix socket."""
    drain_timeout: Duration = 30.0
    """Longest time that a stop may take to commit and acknowledge the records that were read."""
    peers: tuple[PageUrl, ...] = ()
    """URLs of the pages of other daemons, such as "http://landing-2:8650": the page links them."""
    reload: Literal["signal", "change"] = "signal"
    """When this file is read again: at SIGHUP; or also when its content has changed, which is looked at every 5 s."""


class RollConfig(Table):
    """Limits of a roll, the files of one commit: the first limit that is reached ends it."""

    bytes: SomeSize = 128 * 2**20
    """Size on disk, of all files of the roll together."""
    rows: Rows = 5_000_000
    """Records in the roll. The last entry is never split, so a roll may have some more."""
    age: SomeTime = 60.0
    """Time since the first record of the roll."""
    idle: SomeTime = 10.0
    """Time since the last record of the roll."""


class SinkConfig(Table):
    """The kind and the place of the output of a pipeline."""

    type: Text
    """parquet, arrow, jsonl (files), delta, iceberg (a table of Parquet files), postgresql (a table there), stdout,
    discard, the name of a system such as kafka (a topic), or of a plug-in."""
    path: DatasetPath | None = None
    """Folder of the dataset, or its URL in an object store. Several daemons may write into one dataset. "{topic}" in it
    makes a dataset for each topic, whose name stands in its place. For a topic as sink: the place of its positions and
    dead letters."""
    store: StoreConfig | None = None
    catalog: CatalogConfig | None = None
    table: Text | None = None
    """iceberg: the table in the catalog, with its namespace: "shop.orders"; "raw.{topic}" if path has "{topic}".
    postgresql: the table, with its schema unless that is public."""
    names: dict[str, str] = Field(default_factory=dict)
    """Names of datasets for "{topic}", by topic, instead of those that the topics' names give."""
    branch: Text | None = None
    """iceberg: the branch of the table that gets the files, made from main if it is missing; default: main."""
    url: DatabaseUrl | None = None
    """postgresql: URL of the database as libpq has it, with TLS and other parameters, without the password."""
    password: Password | None = None
    """postgresql: password of the user; default: as for libpq (PGPASSFILE, a service file, a certificate)."""
    mode: Literal["append", "upsert"] = "append"
    """postgresql: append adds each record as a row; upsert keeps one row a key, that of its last record, and a
    tombstone (a null value) deletes it."""
    key: tuple[Text, ...] = ()
    """postgresql: the columns of the key, for upsert."""
    envelope: Literal["none", "debezium"] = "none"
    """postgresql: debezium: decoded values are change events (before, after, op), which are carried out, for upsert."""
    types: dict[str, Text] = Field(default_factory=dict)
    """postgresql: SQL types of columns that are made, by name, such as { id = "uuid", value = "jsonb" }."""
    timeout: SomeTime = 120.0
    """postgresql: the longest time of one statement."""
    topic: Text | None = None
    """Topic that records are written to, for the name of a system as type. Beside it stand url, auth, tls and the other
    keys of a connection, as in source."""
    key_hash: Literal["java", "murmur3"] = "java"
    """Pulsar: hash of keys to partitions of the topic; use that of the topic's other producers."""
    delivery: Literal["at-least-once", "exactly-once"] | None = None
    """Topics: exactly-once commits records and positions in one transaction of the topic's brokers (Kafka), or gives
    records numbers by which the brokers drop what they have stored (Pulsar, with path and deduplication). Default:
    exactly-once into Kafka without path if its brokers allow it, with a roll.age of 1s; else at-least-once."""
    positions: Text = "fastwire-positions"
    """Topics, exactly-once: the compacted topic in the same cluster that keeps the positions; made if it is missing."""
    dead_letters: Text | None = None
    """Topics, exactly-once: the topic in the same cluster for dead letters, in the same transaction; made if it is
    missing. Without it they stop their partitions."""
    on_error: Literal["dead_letter", "stop"] = "dead_letter"
    """Topics: reaction to a record that the topic never takes (too large, say). dead_letter: keep it at path, or in the
    topic dead_letters; stop: stop its partition, as without either."""
    batching: Literal["key", "grouped", "mixed"] = "key"
    """Pulsar: which keys share a batch. key: one, and another key ends the batch, so that all readers keep their order;
    grouped: one, in larger batches, and only the records of a key keep their order; mixed: any, in the largest batches,
    and readers of key_shared subscriptions lose the order of keys."""
    connection: SkipJsonSchema[ConnectionField | None] = Field(default=None, exclude=True)
    """The connection of a topic."""
    compression: Text | None = None
    """Codec of the files; default: zstd:1, none for jsonl. Of batches for a topic: lz4.

    parquet, delta, iceberg: zstd[:1-22] lz4 snappy gzip[:1-9] none; arrow: zstd lz4 none; jsonl: none gzip[:1-9]
    zstd[:1-22]."""
    columns: tuple[Column, ...] | None = None
    """Columns to keep; default: all."""
    split: Literal["none", "topic", "partition"] = "none"
    """Folders by topic (t=…) or partition (t=…/p=…). A topic name too long for a folder is cut and ends with a hash."""
    partition_by: PartitioningField = UNPARTITIONED
    """Folders by day (dt=…) or hour (dt=…/hh=…) of the record's timestamp, in UTC; or by columns of decoded values:
    { column = "country" }, { column = "created", by = "day" } for one with times, or an array of these."""
    roll: RollConfig = RollConfig.model_construct()
    writers: Count = 1
    """Files written at once; default: 2, or 1 with one core or less than 256MiB of memory. 1 keeps files in order."""
    create: Switch = False
    """Create the dataset although the subscription or group already has progress."""
    options: SkipJsonSchema[dict[str, Any]] = Field(default_factory=dict, repr=False, exclude=True)
    """The keys of the file for a plug-in, besides the keys here. Their values may be secrets."""

    @property
    def is_dataset(self) -> bool:
        """True if rows and positions are one commit, so that delivery is exactly once."""
        return sink_kind(self.type) == "dataset"

    @property
    def has_log(self) -> bool:
        """True if positions are committed at ``path``: of a dataset, or of a topic with a path."""
        return self.is_dataset or (self.is_topic and self.path is not None)

    @property
    def is_database(self) -> bool:
        """True if records become rows of a table in a database."""
        return sink_kind(self.type) == "database"

    @property
    def by_topic(self) -> bool:
        """True if each topic has a dataset of its own."""
        return self.path is not None and TOPIC in str(self.path)

    @property
    def table_format(self) -> str:
        """The format of the table in which the files are published; "" for none."""
        return self.type if self.type in TABLE_TYPES else ""

    @property
    def is_topic(self) -> bool:
        """True if records are written to a topic."""
        return self.connection is not None


class PipelineConfig(Table):
    """One path from a broker into a sink."""

    source: SourceField
    decode: DecodeConfig | None = None
    transform: Text | None = None
    """SQL for each row of records that are not decoded, such as "SELECT * FROM batch WHERE key IS NOT NULL", over their
    columns. * stands for sink.columns. DuckDB runs it (the extra sql); it must be row-wise. A row for which it fails is
    treated by source.on_corrupt. With decode it is a key of that table."""
    sink: SinkConfig

    @model_validator(mode="wrap")
    @classmethod
    def _show_soon(cls, table: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        """Shorten the default roll if brokers may show records only at its end."""
        built = build(table)
        roll = built.sink.roll
        if "age" in roll.model_fields_set or not built.brokers_decide:
            return built
        sink = built.sink.model_copy(update={"roll": roll.model_copy(update={"age": TRANSACTION_AGE_S})})
        return built.model_copy(update={"sink": sink})

    @property
    def makes_columns(self) -> bool:
        """True if rows have other columns than the records: values are decoded, or a query makes them."""
        return self.decode is not None or self.transform is not None

    @property
    def brokers_decide(self) -> bool:
        """True if the brokers of the topic that is written to decide whether that is exactly once."""
        return self.sink.is_topic and self.sink.delivery is None and not self.at_least_once_because

    @property
    def at_least_once_because(self) -> str:
        """The reason why a topic without ``delivery`` is written at least once; "" if its brokers decide."""
        grammar = grammar_named(self.sink.type)
        if grammar.exactly_once != "transactions":
            return f"topics of {grammar.title} are exactly once only if sink.delivery says so"
        if self.sink.path is not None:
            return "the positions are at sink.path"
        return "consumers share the partitions of the source" if self.source.shared else ""


class Landing(Table):
    """The tables of a configuration file that are for the daemon."""

    daemon: DaemonConfig = Field(default_factory=DaemonConfig)
    pipelines: dict[str, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name."""


class Config(Landing):
    """A whole configuration file."""

    spark: dict[str, SparkConfig] = Field(default_factory=dict)
    """Jobs on Spark by name; `fastwire-consume spark` runs them."""
    _path: Path | None = PrivateAttr(default=None)
    _former: tuple[Problem, ...] = PrivateAttr(default=())
    _text: str = PrivateAttr(default="")

    @property
    def sources(self) -> dict[str, Reading]:
        """The sources that are topics of brokers: by pipeline, and by job as ``spark.NAME``."""
        jobs = {f"spark.{name}": job.source for name, job in self.spark.items()}
        return {
            **{name: pipeline.source for name, pipeline in self.pipelines.items()},
            **{name: source for name, source in jobs.items() if isinstance(source, SparkBrokers)},
        }

    @property
    def path(self) -> Path | None:
        """The file that this was read from."""
        return self._path

    @property
    def former(self) -> tuple[Problem, ...]:
        """Keys and values that are written under former names, each with today's; they are no mistakes."""
        return self._former

    @property
    def text(self) -> str:
        """The text that this was read from."""
        return self._text
