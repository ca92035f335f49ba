"""Pulsar for people: ``async with connect(url) as client: async for chunk in client.subscribe(…)``."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fastwire.pulsar.namespace import TopicPattern
from fastwire.pulsar.producer import ProducerSettings
from fastwire.pulsar.routing import Router
from fastwire.pulsar.topic import Topic, parse_service_url, parse_topic
from fastwire.wire.pool import Pool

from ..auth import Credentials, credentials
from ..config import AuthConfig, TlsConfig
from ..tls import ClientTls
from .consumer import Consumer
from .intake import Intake, together
from .options import ConsumerOptions
from .producer import TopicProducer
from .quiet import QuietCluster
from .reader import Reader, ReadFrom
from .settings import ClientSettings

__all__ = ["Client", "connect"]

MEMORY = 1 << 30


def connect(
    url: str,
    *,
    token: str | None = None,
    token_file: str | Path | None = None,
    auth: AuthConfig | Credentials | Mapping[str, Any] | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    verify: bool = True,
    server_name: str = "",
    listener: str = "",
    operation_timeout_s: float = 30.0,
    connect_timeout_s: float = 10.0,
    keep_alive_s: float = 30.0,
) -> "Client":
    """A client of the cluster at ``url``: ``pulsar://`` or ``pulsar+ssl://``, several hosts with commas between.

    ``token`` is a JWT, ``file:///path`` or ``env:NAME``; it and ``token_file`` are read again for every connection.
    ``auth`` takes everything else, in the words of the configuration's table of that name: ``{"user": "u",
    "password": "…"}``. With ``cert`` and ``key`` (PEM) alone the certificate says who we are. ``server_name`` is what
    the broker's certificate must say, if not its host. Connections are made when they are needed. Raises ValueError for
    a URL or a word that is wrong, ConfigError for files that cannot be used.
    """
    service = parse_service_url(url)
    if isinstance(auth, Mapping):
        auth = AuthConfig(**auth)
    elif auth is None:
        given: dict[str, Any] = {"token": token, "token_file": token_file}
        auth = AuthConfig(**{name: value for name, value in given.items() if value is not None})
    files: dict[str, Any] = {
        name: Path(path) for name, path in (("ca", ca), ("cert", cert), ("key", key)) if path is not None
    }
    if isinstance(auth, AuthConfig):
        auth = credentials(auth, client_certificate=cert is not None)
    return Client(
        ClientSettings(
            url=service,
            credentials=auth,
            tls=ClientTls(TlsConfig(verify=verify, **files)) if service.tls else None,
            server_name=server_name,
            listener=listener,
            operation_timeout_s=operation_timeout_s,
            connect_timeout_s=connect_timeout_s,
            keep_alive_s=keep_alive_s,
        )
    )


class Client:
    """Everything that is made of it is closed with it: ``async with``. Belongs to the event loop that it is used on."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._pool: Pool | None = None
        self._quiet: QuietCluster | None = None
        self._intakes: list[Intake] = []
        self._producers: list[TopicProducer] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close consumers, readers and producers; what producers have not flushed is not sent. May be called twice."""
        self._closed = True
        intakes, self._intakes = self._intakes, []
        producers, self._producers = self._producers, []
        quiet, self._quiet = self._quiet, None
        try:
            await together([*(one.close() for one in intakes), *(one.close() for one in producers)])
        finally:
            if quiet is not None:
                await quiet.__aexit__()

    def subscribe(
        self,
        topics: str | Iterable[str] | TopicPattern,
        subscription: str,
        *,
        columns: Iterable[str] | None = None,
        options: ConsumerOptions | None = None,
        **more: Any,
    ) -> Consumer:
        """Consume ``topics`` under the name ``subscription``; what is more to be said are ``ConsumerOptions``.

        A pattern (``fastwire.pulsar.namespace.parse_pattern``) means all topics that match, also those that come later.

        ``columns`` are those to be built, by default all; single rows are acknowledged by ``ledger``, ``offset`` and
        ``batchIndex``. Raises ValueError for options that make no sense.
        """
        options = options or ConsumerOptions(**more)
        names, pattern = _topics(topics)
        consumer = Consumer(self._with(columns), self._memory(), names, subscription, options, pattern=pattern)
        self._intakes.append(consumer)
        return consumer

    def read(
        self,
        topics: str | Iterable[str] | TopicPattern,
        start: ReadFrom = "latest",
        *,
        columns: Iterable[str] | None = None,
        **more: Any,
    ) -> Reader:
        """Read ``topics`` from ``start`` on, without a subscription: see ``Reader``."""
        names, pattern = _topics(topics)
        reader = Reader(self._with(columns), self._memory(), names, start, pattern=pattern, **more)
        self._intakes.append(reader)
        return reader

    async def producer(
        self, topic: str, settings: ProducerSettings | None = None, *, router: Router | None = None
    ) -> TopicProducer:
        """Write to ``topic``: ``async with await client.producer(topic) as producer: await producer.send(…)``.

        Raises ProduceError where the broker does not let us.
        """
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
        """How many partitions a topic has, 0 if it has none. Does not make it."""
        return await (await self._cluster()).partitions(str(parse_topic(topic)), self.settings.url, create=False)

    async def _cluster(self) -> QuietCluster:
        self._need()
        if self._quiet is None:
            self._quiet = await QuietCluster(self.settings).__aenter__()
        return self._quiet

    def _with(self, columns: Iterable[str] | None) -> ClientSettings:
        self._need()
        return self.settings if columns is None else replace(self.settings, columns=frozenset(columns))

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
