"""Cache of topic schemas (spec: pulsar 23)."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import ServiceUrl, parse_topic
from fastwire.pulsar.protocol.request import BrokerError, Kind
from fastwire.pulsar.protocol.schema import Schema, ask_schema, schema_of, split_key_value, version_number

from ...runtime.shared import shared
from ..producing.cell import cell_bytes
from .cluster import Cluster

# A version comes from the producer of a record, so the number of versions is not limited.
MOST_KEPT = 1000


class Schemas:
    """Requests schemas from any broker of ``service`` and caches them: a version never changes."""

    def __init__(self, cluster: Cluster, service: ServiceUrl) -> None:
        self._cluster = cluster
        self._service = service
        self._known: dict[tuple[str, bytes], Schema] = {}
        self._asking: dict[tuple[str, bytes], asyncio.Task[Schema | None]] = {}

    async def get(self, topic: str, version: bytes = b"") -> Schema | None:
        """Return a version of a topic's schema, by default the newest; None if there is no such version, or no schema.

        All partitions of a topic have the same schemas. Raises FastwireError if the broker or the connection fails.
        """
        key = str(parse_topic(topic).base), version
        return self._known.get(key) or await shared(self._asking, key, lambda: self._ask(*key))

    def version_of(self, row: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """See ``SchemaTexts.version_of``."""
        version = cell_bytes(row["schemaVersion"])
        return (row["topic"], version) if version else None

    async def describe(self, topic: str, version: bytes) -> list[str]:
        """See ``SchemaTexts.describe``."""
        schema = await self.get(topic, version)
        name = f"schema {version_number(version)} of {topic.removeprefix('persistent://')}"
        if schema is None:
            return [f"{name}: the broker does not know it"]
        return [f"{name}: {schema.kind} {schema.name}".rstrip(), *(f"    {line}" for line in _definitions(schema))]

    async def _ask(self, topic: str, version: bytes) -> Schema | None:
        ask = ask_schema(topic, version)
        try:
            answer = await self._cluster.ask(
                self._service, lambda connection, now: connection.request(Kind.GET_SCHEMA, ask, now)
            )
        except BrokerError as exc:
            if exc.code == pb.TopicNotFound:
                return None
            raise
        schema = schema_of(answer.getSchemaResponse, version)
        if len(self._known) >= MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[topic, schema.version] = schema
        return schema


def _definitions(schema: Schema) -> list[str]:
    """Return a description of a schema, a line for each of its parts."""
    if schema.kind != "KEY_VALUE":
        return [_text(schema.definition)] if schema.definition else []
    try:
        parts = split_key_value(schema.definition)
    except ProtocolError as exc:
        return [f"cannot be read: {exc}"]
    kinds = [schema.properties.get(f"{part}.schema.type", "BYTES") for part in ("key", "value")]
    return [
        f"{part} {kind} {_text(data)}".rstrip() for part, kind, data in zip(("key", "value"), kinds, parts, strict=True)
    ]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
