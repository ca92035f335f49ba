"""Values of a registry's schemas and decoders of them, and what a dataset of decoded values has in its folder."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.decode.avro.schema import compile_avro
from fastwire.pulsar.format.payload import Record, encode_batch
from fastwire_daemon.config.decode import RegistryConfig, chosen_columns
from fastwire_daemon.dataset.commitlog.deadletterfile import read_dead_letters
from fastwire_daemon.net.schemaregistry import SchemaRegistry
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.recordschemas import RegisteredSchemas
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from fastwire_daemon.testing import Feed
from tests.support.avro import encode
from tests.support.schema_registry import SchemaRegistryServer, framed

Opened = Callable[..., DatasetSink]

# The values of a feed are texts such as 0:7:12, and those of five bytes match this schema.
FIVE = {
    "type": "record",
    "name": "Five",
    "fields": [
        {"name": "partition_digit", "type": {"type": "fixed", "name": "Digit", "size": 1}},
        {"name": "offset", "type": {"type": "fixed", "name": "Colon", "size": 2}},
        {"name": "rest", "type": {"type": "record", "name": "Rest", "fields": [
            {"name": "colon", "type": {"type": "fixed", "name": "One", "size": 1}},
            {"name": "row", "type": "Digit"},
        ]}},
    ],
}  # fmt: skip


REGISTERED: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"}, {"name": "country", "type": "string"},
]}  # fmt: skip
COLUMNS: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "country", "type": ["null", "string"]}, {"name": "id", "type": "long"},
    {"name": "tag", "type": "string", "default": "none"},
]}  # fmt: skip
WIDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "country", "type": "string"}, {"name": "note", "type": "string"},
]}  # fmt: skip


def decoder(wanted: tuple[str, ...] = ("*", "_offset"), schema: Any = FIVE, **more: Any) -> ValueDecoder:
    program = compile_avro(json.dumps(schema))
    levels = more.get("levels", ())
    columns = tuple(name for name in chosen_columns(wanted, program, "pulsar") if name not in levels)
    return ValueDecoder(program, columns, "pulsar", open_ended="*" in wanted, **more)


def of_registry(server: SchemaRegistryServer, schema: Any = COLUMNS, **more: Any) -> ValueDecoder:
    config = RegistryConfig.model_validate({"url": server.url})
    return decoder(("*",), schema, schemas=RegisteredSchemas(SchemaRegistry(config)), **more)


def orders(count: int, id: int = 7) -> list[bytes]:
    return [framed(id, encode(REGISTERED, {"id": i, "country": "DE"})) for i in range(count)]


def wider(count: int) -> list[bytes]:
    return [framed(8, encode(WIDER, {"id": (1 << 40) + i, "country": "FR", "note": "n"})) for i in range(count)]


class GivenFeed(Feed):
    """A feed of one partition, whose values are given."""

    def __init__(self, start: Coverage | None = None) -> None:
        super().__init__(partitions=1, start=start)

    def chunk_of(self, values: list[Any]) -> Chunk:
        """Return one entry with these values."""
        self._rows, self._given = len(values), values
        return self.chunk(1)

    def _values(self, partition: int, entry: int) -> list[bytes]:
        return self._given


class Changes(GivenFeed):
    """A feed whose values may be null; the records of an entry have the keys 0, 1, ..."""

    def _block(self, partition: int, entry: int) -> bytes:
        return encode_batch(Record(value=value, key=str(i)) for i, value in enumerate(self._given))


def files(path: Path) -> list[Path]:
    found = [file for file in path.rglob("*") if file.is_file() and "_fastwire" not in file.parts]
    return sorted(found, key=lambda file: file.name)


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for file in files(path) for row in pq.read_table(file, partitioning=None).to_pylist()]


def dead_letters(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(path.glob("_fastwire/diverted/*")):
        found += read_dead_letters(io.BytesIO(file.read_bytes())).to_pylist()
    return found


def tables(path: Path) -> list[pa.Table]:
    return [pq.read_table(file, partitioning=None) for file in files(path)]


def as_one(path: Path) -> list[dict[str, Any]]:
    """Return the rows as a reader that unites the columns of the files by name returns them."""
    united: list[dict[str, Any]] = pa.concat_tables(tables(path), promote_options="permissive").to_pylist()
    return united
