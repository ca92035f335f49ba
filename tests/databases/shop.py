"""A table that gets given records, by the sink of a configuration."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.pulsar.format.payload import Record, encode_batch
from fastwire_daemon.config import parse_config
from fastwire_daemon.sinks.base import FirstColumns
from fastwire_daemon.sinks.postgresql.sink import PostgresSink
from fastwire_daemon.sinks.registry import build_sink
from fastwire_daemon.testing import Feed
from tests.databases.postgresql import query
from tests.real.daemon import _toml

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


class Given(Feed):
    """A topic of one partition with given records."""

    def __init__(self, start: Coverage | None = None) -> None:
        super().__init__(partitions=1, start=start)

    def records(self, records: Iterable[tuple[str | None, bytes | None] | bytes | None]) -> Chunk:
        """Return one entry with these values, or pairs of key and value."""
        pairs = [each if isinstance(each, tuple) else (str(i), each) for i, each in enumerate(records)]
        self._rows, self._given = len(pairs), pairs
        return self.chunk(1)

    def _block(self, partition: int, entry: int) -> bytes:
        return encode_batch(Record(value=value, key=key, null_key=key is None) for key, value in self._given)


def order(id: int, note: str | None = None) -> bytes:
    """A value of ORDER as JSON."""
    return json.dumps({"id": id, "note": note}).encode()


def avro(schema: Mapping[str, Any], value: Mapping[str, Any]) -> bytes:
    """A value in Avro's binary encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


class Shop:
    """Makes sinks for the table ``orders`` of one database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._made: list[PostgresSink] = []

    def sink(
        self,
        schema: Any = None,
        *,
        source: Mapping[str, Any] | None = None,
        decode: Mapping[str, Any] | None = None,
        reached: Callable[[str], None] | None = None,
        url: str = "",
        transform: str | None = None,
        first: FirstColumns | None = None,
        **keys: Any,
    ) -> PostgresSink:
        """An opened sink; with a ``schema`` it decodes JSON, and with ``first`` it infers the columns."""
        tables: dict[str, Mapping[str, Any]] = {
            "source": {
                "url": "pulsar://broker:6650",
                "topics": ["feed"],
                "subscription": "s",
                "subscription_type": "failover",
                "start": "earliest",
                "cluster": "feed",
                **(source or {}),
            },
            "sink": {"type": "postgresql", "url": url or self.url, "table": "orders", "timeout": "10s", **keys},
        }
        if first is not None:
            tables["decode"] = {"format": "json", "schema": "infer", **(decode or {})}
        elif schema is not None:
            file = self.folder / f"schema-{len(self._made)}.avsc"
            file.write_text(json.dumps(schema))
            tables["decode"] = {"format": "json", "schema": str(file), **(decode or {})}
        text = "" if transform is None else f"[pipelines.p]\ntransform = {json.dumps(transform)}\n"
        for name, table in tables.items():
            text += f"[pipelines.p.{name}]\n" + "".join(
                f"{key} = {_toml(value)}\n" for key, value in table.items() if value is not None
            )
        sink = build_sink(parse_config(text, {}).pipelines["p"], memory=64 << 20, first=first)
        assert isinstance(sink, PostgresSink)
        self._made.append(sink)
        if reached is not None:
            sink._reached = reached
        sink.open()
        return sink

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return query(self.url, statement)

    def types(self) -> dict[str, str]:
        """The columns of the table."""
        return dict(
            self.query(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
            )
        )

    def letters(self) -> list[tuple[Any, ...]]:
        """Sqlstate, reason and payload of the dead letters."""
        return self.query("SELECT sqlstate, reason, payload FROM fastwire_dead_letters ORDER BY ctid")

    def close(self) -> None:
        for sink in self._made:
            sink.close()
