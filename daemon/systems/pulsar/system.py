"""Pulsar as a ``System``."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastwire.pulsar.grammar import GRAMMAR
from fastwire.pulsar.message_id import MessageId
from fastwire.pulsar.topic import parse_topic
from fastwire.wire.pool import Pool

from ...config import ConfigError, EncryptionConfig, Problem, SourceConfig, SparkSource, Start, parse_source
from ...net.auth import BasicCredentials, Credentials
from ..base import Described, FileCheck, MakeSource, System, TopicReader
from ..writer import WriteOptions, Writer
from .config import PulsarSourceConfig, SchemaConfig, own_source
from .settings import ClientSettings, client_fields, decryptor, initial_schema, pattern_of

__all__ = ["SYSTEM"]

_POSITION = re.compile(r"-?[0-9]+:-?[0-9]+")


class _Pulsar(System):
    grammar = GRAMMAR
    group_word = "subscription"
    real_demo = True

    def make_source(self, source: SourceConfig) -> MakeSource:
        from .source import PulsarSource, settings_from

        settings_from(source)
        return lambda events, pool, metrics, columns, cluster: PulsarSource(
            settings_from(source, columns=columns, cluster=cluster), events, pool, metrics=metrics
        )

    def open_reader(self, source: SourceConfig, pool: Pool) -> TopicReader:
        from .client.reader import Reader, ReadFrom

        def start_of(start: Start) -> ReadFrom:
            if start.time is not None:
                return start.time
            if start.positions:
                return {name: MessageId(at.a, at.b) for name, at in start.positions.items()}
            return "earliest" if start.kind == "earliest" else "latest"

        settings = ClientSettings(**client_fields(source))
        start = start_of(source.start)
        return Reader(settings, pool, source.topics, start, pattern=pattern_of(source), patience_s=0.0)

    def read_from(self, keys: Mapping[str, Any], start: str) -> SourceConfig:
        if _POSITION.fullmatch(start):
            return parse_source({**keys, "start": dict.fromkeys(keys.get("topics", ()), start)})
        if re.fullmatch(r"[0-9]+|([0-9]+=[0-9]+,?)+", start):
            raise ConfigError([Problem("", "start", "of Pulsar is LEDGER:ENTRY, of one partition")])
        return super().read_from(keys, start)

    async def describe(self, source: SourceConfig) -> Described:
        from .client_cluster import ClientCluster
        from .topics import Topics

        names = [parse_topic(topic) for topic in source.topics]
        settings = ClientSettings(**client_fields(source))
        async with ClientCluster(settings) as cluster:
            news = await Topics(cluster, settings.url, names, pattern_of(source)).look()
            if news.failure is not None:
                raise news.failure
            for found in news.found:
                name = found.topic.of_partition(0) if found.partitions else found.topic
                await cluster.owner(str(name), settings.url)
        return Described([(str(found.topic), found.partitions) for found in news.found], [])

    def open_writer(
        self, source: SourceConfig, topic: str, options: WriteOptions
    ) -> AbstractAsyncContextManager[Writer]:
        from .writer import open_writer

        return open_writer(source, topic, options)

    def sharing(self, source: SourceConfig) -> str:
        return f"subscription {source.subscription} ({own_source(source).subscription_type})"

    def check_credentials(self, credentials: Credentials) -> None:
        if isinstance(credentials, BasicCredentials):
            credentials.pair()

    def file_checks(self, source: SourceConfig | SparkSource) -> list[FileCheck]:
        checks = []
        encryption = source.encryption if isinstance(source, SparkSource) else own_source(source).encryption
        if encryption.private_keys:
            checks.append(FileCheck("encryption", _keys_in(encryption)))
        if isinstance(source, PulsarSourceConfig) and source.initial_schema is not None:
            checks.append(FileCheck("schema", _schema_in(source.initial_schema)))
        return checks


def _keys_in(encryption: EncryptionConfig) -> Callable[[], str]:
    def look() -> str:
        decryptor(encryption)
        return f"private keys found: {', '.join(encryption.private_keys)}"

    return look


def _schema_in(schema: SchemaConfig) -> Callable[[], str]:
    def look() -> str:
        initial_schema(schema)
        return f"{schema.type} {schema.file or ''}".rstrip()

    return look


SYSTEM = _Pulsar()
