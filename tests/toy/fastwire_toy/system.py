"""The toy system as a ``System``: sources, readers, writers, descriptions."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.position import Log
from fastwire.wire.pool import Pool
from fastwire_daemon.config import Connection, SourceConfig, Start, TopicChoice
from fastwire_daemon.systems.base import Described, MakeSource, System, TopicReader
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.produced import Produced, ProduceError
from fastwire_daemon.systems.writer import Put, WriteOptions, Writer

from .config import ToySourceConfig
from .grammar import GRAMMAR
from .link import Link, RequestRefused, connect
from .scan import Place
from .source import ToySource

__all__ = ["SYSTEM"]

MEMORY = 1 << 20  # bytes, of connections that read no records


class ToySystem(System):
    """See ``systems.base.System``."""

    grammar = GRAMMAR
    group_word = "group"

    def make_source(self, source: SourceConfig) -> MakeSource:
        assert isinstance(source, ToySourceConfig)
        return lambda events, pool, metrics, columns, cluster: ToySource(source, events, pool, columns, cluster)

    def open_reader(self, connection: Connection, topics: TopicChoice, start: Start, pool: Pool) -> TopicReader:
        return ToyReader(connection, topics, start, pool)

    async def describe(self, connection: Connection, topics: TopicChoice) -> Described:
        link = await connect(connection.url, LogTable(), Pool(MEMORY))
        try:
            return Described([(name, (await _topic(link, name))["partitions"]) for name in topics.names], [])
        finally:
            await link.close()

    def open_writer(
        self, connection: Connection, topic: str, options: WriteOptions
    ) -> AbstractAsyncContextManager[Writer]:
        return _open_writer(connection, topic, options)

    def sharing(self, source: SourceConfig) -> str:
        assert isinstance(source, ToySourceConfig)
        return f"group {source.subscription}, one consumer a partition"


SYSTEM = ToySystem()


async def _topic(link: Link, name: str) -> dict[str, Any]:
    try:
        return await link.ask("topic", topic=name)
    except RequestRefused as exc:
        raise RequestRefused(f"topic {name}: {exc}") from None


class ToyReader:
    """See ``systems.base.TopicReader``: reads all partitions by one fetch each."""

    schemas = None

    def __init__(self, connection: Connection, topics: TopicChoice, start: Start, pool: Pool) -> None:
        self._connection = connection
        self._topics = topics
        self._start = start
        self._pool = pool
        self._table = LogTable()
        self._link: Link | None = None
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue()
        self._places: list[tuple[Place, int, dict[str, Any]]] = []  # with the end at the opening, and the keys

    async def open(self) -> None:
        self._link = link = await connect(self._connection.url, self._table, self._pool, self._chunks.put_nowait)
        for name in self._topics.names:
            found = await _topic(link, name)
            for number, end in enumerate(found["ends"]):
                index = self._table.add_log(Log("toy", "", name, str(number), found["incarnation"]))
                named = self._start.positions.get(f"{name}/{number}")
                begin = named.a if named is not None else end if self._start.kind == "latest" else 0
                keys = {"topic": name, "partition": number, "incarnation": found["incarnation"]}
                self._places.append((Place(index, number, begin), end, keys))

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        tasks = [asyncio.create_task(self._follow(place, keys)) for place, _, keys in self._places]
        try:
            while True:
                yield await self._chunks.get()
        finally:
            for task in tasks:
                task.cancel()

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        for place, end, keys in self._places:
            while place.offset < end:
                await self._fetch(place, keys)
                while not self._chunks.empty():
                    yield self._chunks.get_nowait()

    async def _follow(self, place: Place, keys: dict[str, Any]) -> None:
        while True:
            await self._fetch(place, keys)

    async def _fetch(self, place: Place, keys: dict[str, Any]) -> None:
        assert self._link is not None
        await self._link.ask("fetch", place=place, offset=place.offset, **keys)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()


class ToyWriter:
    """See ``systems.writer.Writer``: each record is a request, and ``flush`` waits for the answers."""

    def __init__(self, link: Link, topic: str, partitions: int) -> None:
        self.topic = topic
        self.produced = Produced()
        self._link = link
        self._partitions = partitions
        self._next = 0
        self._sent: set[asyncio.Task[dict[str, Any]]] = set()

    async def write(self, put: Put) -> None:
        partition = put.partition
        if partition is None:
            self._next = partition = (self._next + 1) % self._partitions
        if not 0 <= partition < self._partitions:
            raise ProduceError(f"{self.topic} has no partition {partition}: there are {self._partitions}")
        key = put.key.encode() if isinstance(put.key, str) else put.key
        record = [_text(key), _text(put.value), [[name, _text(value.encode())] for name, value in put.properties]]
        request = self._link.ask("produce", topic=self.topic, partition=partition, records=[record])
        self._sent.add(asyncio.create_task(request))
        self.produced.records += 1
        self.produced.entries += 1
        self.produced.bytes += len(put.value or b"")

    async def generate(self, load: Load) -> AsyncIterator[int]:
        for partition, numbers in load.parts():
            for number in numbers:
                await self.write(Put(load.record(number), key=load.key(number), partition=partition))
            await self.flush()
            yield len(numbers)

    async def flush(self) -> None:
        sent, self._sent = self._sent, set()
        for each in sent:
            await each


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


@asynccontextmanager
async def _open_writer(connection: Connection, topic: str, options: WriteOptions) -> AsyncIterator[Writer]:
    link = await connect(connection.url, LogTable(), Pool(MEMORY))
    try:
        writer = ToyWriter(link, topic, (await _topic(link, topic))["partitions"])
        yield writer
        await writer.flush()
    finally:
        await link.close()
