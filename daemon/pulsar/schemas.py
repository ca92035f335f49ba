"""The schemas of topics, asked for once (pulsar 23)."""

import asyncio

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.request import BrokerError, Kind
from fastwire.pulsar.schema import Schema, ask_schema, schema_of
from fastwire.pulsar.topic import ServiceUrl, parse_topic

from ..shared import shared
from .cluster import Cluster

__all__ = ["Schemas"]

# A version is a word of whoever has produced a record, and there may be any number of them.
MOST_KEPT = 1000


class Schemas:
    """Asks any broker of ``service``, and keeps what was answered: a version never changes."""

    def __init__(self, cluster: Cluster, service: ServiceUrl) -> None:
        self._cluster = cluster
        self._service = service
        self._known: dict[tuple[str, bytes], Schema] = {}
        self._asking: dict[tuple[str, bytes], asyncio.Task[Schema | None]] = {}

    async def get(self, topic: str, version: bytes = b"") -> Schema | None:
        """A version of a topic's schema, by default the newest one; None if there is no such version, or no schema.

        All partitions of a topic have the same schemas. Raises FastwireError if the broker or the connection fails.
        """
        key = str(parse_topic(topic).base), version
        return self._known.get(key) or await shared(self._asking, key, lambda: self._ask(*key))

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
