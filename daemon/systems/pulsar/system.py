"""Pulsar as a ``System``."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from fastwire.pulsar.grammar import GRAMMAR
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.wire.pool import Pool

from ...config import Connection, SourceConfig, Start, TopicChoice, parse_start
from ...net.auth import BasicCredentials, Credentials
from ...net.schemaregistry import TopicSchemas
from ..base import Described, FileCheck, MakeSource, System, TopicReader
from ..recall import Recall
from ..sequenced import SequencedWriter
from ..writer import WriteOptions
from .config import EncryptionConfig, PulsarConnection, PulsarSourceConfig
from .login import UserLogin
from .settings import ClientSettings, client_fields, decryptor, pattern_of

if TYPE_CHECKING:
    from .source.pulsarsource import Beside

_POSITION = re.compile(r"-?[0-9]+:-?[0-9]+")


class _Pulsar(System):
    grammar = GRAMMAR
    real_demo = True

    def make_source(self, source: SourceConfig) -> MakeSource:
        from .source import PulsarSource, settings_from

        settings_from(source)
        return lambda events, pool, metrics, columns, cluster: PulsarSource(
            settings_from(source, columns=columns, cluster=cluster), events, pool, metrics=metrics, beside=beside
        )

    def open_reader(
        self,
        connection: Connection,
        topics: TopicChoice,
        start: Start,
        pool: Pool,
        columns: frozenset[str] | None = None,
    ) -> TopicReader:
        from .client.places import Places
        from .client.reader import Reader

        def read_from() -> Places:
            if start.time is not None:
                return start.time
            if start.positions:
                return {name: MessageId(at.a, at.b) for name, at in start.positions.items()}
            return "earliest" if start.kind == "earliest" else "latest"

        settings = ClientSettings(**client_fields(connection), columns=columns)
        names, pattern, before_end = map(parse_topic, topics.names), pattern_of(topics), -(start.offset or 0)
        return Reader(settings, pool, names, read_from(), pattern=pattern, before_end=before_end, patience_s=0.0)

    def start_of(self, text: str, topics: TopicChoice) -> Start:
        if _POSITION.fullmatch(text):
            return parse_start(dict.fromkeys(topics.names, text), self.grammar)
        if re.fullmatch(r"[0-9]+|([0-9]+=-?[0-9]+,?)+", text):
            raise ValueError("of Pulsar is LEDGER:ENTRY, of one partition")
        return super().start_of(text, topics)

    def open_sequenced(
        self, connection: Connection, topic: str, options: WriteOptions
    ) -> AbstractAsyncContextManager[SequencedWriter]:
        from .sequenced import open_sequenced

        return open_sequenced(connection, topic, options)

    def recall(self, connection: Connection, topic: str, pool: Pool) -> Recall:
        from .recall import PulsarRecall

        return PulsarRecall(ClientSettings(**client_fields(connection)), topic, pool)

    async def describe(self, connection: Connection, topics: TopicChoice) -> Described:
        from .cluster import ClientCluster
        from .topics import Topics

        names = [parse_topic(topic) for topic in topics.names]
        settings = ClientSettings(**client_fields(connection))
        async with ClientCluster(settings) as cluster:
            news = await Topics(cluster, settings.url, names, pattern_of(topics)).look()
            if news.failure is not None:
                raise news.failure
            for found in news.found:
                name = found.topic.of_partition(0) if found.partitions else found.topic
                await cluster.owner(str(name), settings.url)
        return Described([(str(found.topic), found.partitions) for found in news.found], [])

    def topic_schemas(self, connection: Connection) -> TopicSchemas:
        from .topicschemas import schemas_of

        return schemas_of(connection)

    def sharing(self, source: SourceConfig) -> str:
        own = PulsarSourceConfig.of(source)
        return f"subscription {own.subscription} ({own.subscription_type})"

    def check_credentials(self, credentials: Credentials | BasicCredentials) -> None:
        if isinstance(credentials, BasicCredentials):
            UserLogin(credentials).pair()

    def file_checks(self, connection: Connection) -> list[FileCheck]:
        encryption = PulsarConnection.of(connection).encryption
        return [FileCheck("encryption", _keys_in(encryption))] if encryption.private_keys else []


def beside() -> "Beside":
    """Return the readers that a source of Pulsar has beside its subscription."""
    from .client import beside as readers

    return readers


def _keys_in(encryption: EncryptionConfig) -> Callable[[], str]:
    def look() -> str:
        decryptor(encryption)
        return f"private keys found: {', '.join(encryption.private_keys)}"

    return look


SYSTEM = _Pulsar()
