"""The Python client for Pulsar: ``async with connect(url) as client: async for chunk in client.subscribe(…)``."""

from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, get_args

from fastwire.pulsar.columns import ROW
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import Topic, parse_service_url, parse_topic
from fastwire.pulsar.producing.router import Router
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.completion import OnFailure
from fastwire.wire.pool import Pool

from ....config import parse_connection
from ..cluster import ClientCluster
from ..producer import TopicProducer
from ..settings import ClientSettings, Keys, client_fields, encrypt_for, key_texts
from .consumer import Consumer
from .intake import Intake, together
from .options import ConsumerOptions
from .places import Places
from .reader import Reader

MEMORY = 1 << 30


def connect(url: str, **keys: Any) -> "Client":
    """Return a client of the cluster at ``url``: ``pulsar://`` or ``pulsar+ssl://``, with comma-separated hosts.

    ``keys`` are those of a connection in a configuration file: ``auth={"user": "u", "password": "p"}``,
    ``tls={"ca": "ca.pem"}``, ``listener``. Tokens and passwords in files are read again for every connection, which are
    opened on demand. Raises ValueError for an invalid URL, ConfigError for an invalid key and unusable files.
    """
    parse_service_url(url)  # which says what a URL of another system lacks
    return Client(ClientSettings(**client_fields(parse_connection({"url": url} | keys))))


class Client:
    """A client of one cluster. Use it by ``async with``, on one event loop; it closes all that was made from it."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._pool: Pool | None = None
        self._client_cluster: ClientCluster | None = None
        self._intakes: list[Intake[Any]] = []
        self._producers: list[TopicProducer] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close consumers, readers and producers; unflushed records are not sent. May be called twice."""
        self._closed = True
        intakes, self._intakes = self._intakes, []
        producers, self._producers = self._producers, []
        cluster, self._client_cluster = self._client_cluster, None
        try:
            await together([*(one.close() for one in intakes), *(one.close() for one in producers)])
        finally:
            if cluster is not None:
                await cluster.__aexit__()

    def subscribe(
        self,
        topics: str | Iterable[str] | TopicPattern,
        subscription: str,
        *,
        columns: Iterable[str] | None = None,
        private_keys: Keys | None = None,
        on_undecryptable: OnFailure | None = None,
        public_keys: Keys | None = None,
        options: ConsumerOptions | None = None,
        **more: Any,
    ) -> Consumer:
        """Consume ``topics`` by the subscription of that name; ``more`` are fields of ``ConsumerOptions``.

        A pattern (``fastwire.pulsar.names.pattern.parse_pattern``) selects all matching topics, also those created
        later.

        ``columns`` are the columns to build, by default all; acks of single rows need ``ledger``, ``offset`` and
        ``batchIndex``. ``private_keys`` decrypt records: RSA keys, as PEM or the path of a PEM file, by the name that
        the producers use; without them the connection's do. An entry that no key decrypts ends the consumer with
        CorruptEntryError (``on_undecryptable`` "fail", the default), is acknowledged and dropped ("discard"), or
        becomes a record of the ciphertext, with the encryption parameters in its headers ("consume"). With
        ``public_keys`` records for the retry topic are encrypted; dead letters of encrypted entries are encrypted under
        their own data key. Raises ValueError for contradictory options and invalid keys.
        """
        options = options or ConsumerOptions(**more)
        names, pattern = _topics(topics)
        settings = self._with(columns, private_keys, on_undecryptable)
        consumer = Consumer(
            settings, self._memory(), names, subscription, options, pattern=pattern, encrypt=encrypt_for(public_keys)
        )
        self._intakes.append(consumer)
        return consumer

    def read(
        self,
        topics: str | Iterable[str] | TopicPattern,
        start: Places = "latest",
        *,
        columns: Iterable[str] | None = None,
        private_keys: Keys | None = None,
        on_undecryptable: OnFailure | None = None,
        **more: Any,
    ) -> Reader:
        """Read ``topics`` from ``start``, without a subscription: see ``Reader``, and ``subscribe`` for the keys."""
        names, pattern = _topics(topics)
        settings = self._with(columns, private_keys, on_undecryptable)
        reader = Reader(settings, self._memory(), names, start, pattern=pattern, **more)
        self._intakes.append(reader)
        return reader

    async def producer(
        self,
        topic: str,
        settings: ProducerSettings | None = None,
        *,
        router: Router | None = None,
        public_keys: Keys | None = None,
    ) -> TopicProducer:
        """Return a producer: ``async with await client.producer(topic) as producer: await producer.send(…)``.

        With ``public_keys`` (RSA, as PEM or the path of a PEM file, by the name that readers use) records are
        encrypted. Raises ProduceError if the broker refuses, ValueError for an invalid key.
        """
        if public_keys:
            settings = replace(settings or ProducerSettings(), encrypt=encrypt_for(public_keys))
        producer = TopicProducer(
            await self._cluster(),
            self.settings.url,
            parse_topic(topic),
            settings,
            router=router,
            operation_timeout_s=self.settings.operation_timeout_s,
        )
        self._producers.append(producer)
        return producer

    async def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if it is not partitioned. Does not create the topic."""
        return await (await self._cluster()).partitions(str(parse_topic(topic)), self.settings.url, create=False)

    async def _cluster(self) -> ClientCluster:
        self._need()
        if self._client_cluster is None:
            self._client_cluster = await ClientCluster(self.settings).__aenter__()
        return self._client_cluster

    def _with(
        self, columns: Iterable[str] | None, private_keys: Keys | None, on_undecryptable: OnFailure | None
    ) -> ClientSettings:
        self._need()
        on_undecryptable = on_undecryptable or self.settings.on_undecryptable
        if on_undecryptable not in get_args(OnFailure):
            raise ValueError(f"on_undecryptable is {on_undecryptable!r}; there are {', '.join(get_args(OnFailure))}")
        if columns is not None:
            columns = frozenset(columns)
            ROW.mask(columns)  # raises ValueError for those that records do not have
        decryptor = self.settings.decryptor
        if private_keys:
            from fastwire.pulsar.reading.encryption import (
                Decryptor,  # its package is large, and most clients do not decrypt
            )

            decryptor = Decryptor(key_texts(private_keys))
        return replace(
            self.settings,
            columns=columns,
            decryptor=decryptor,
            on_undecryptable=on_undecryptable,
        )

    def _memory(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(MEMORY)
        return self._pool

    def _need(self) -> None:
        if self._closed:
            raise ValueError("the client is closed")


def _topics(topics: str | Iterable[str] | TopicPattern) -> tuple[tuple[Topic, ...], TopicPattern | None]:
    if isinstance(topics, TopicPattern):
        return (), topics
    return tuple(parse_topic(topic) for topic in ([topics] if isinstance(topics, str) else topics)), None
