"""The toy system as a ``System``: sources, readers, writers, descriptions."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError
from fastwire.position import Log
from fastwire.wire.pool import Pool
from fastwire_daemon.config import Connection, SourceConfig, Start, TopicChoice
from fastwire_daemon.runtime.tasks import Tasks
from fastwire_daemon.systems.base import Described, MakeSource, System, TopicReader
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.produced import Produced, ProduceError, Refused
from fastwire_daemon.systems.writer import Put, WriteOptions, Writer, checked, puts_of, refuse_create

from .config import ToySourceConfig
from .grammar import GRAMMAR
from .link import Link, connect
from .scan import Slot
from .source import ToySource


class ToySystem(System):
    """See ``systems.base.System``."""

    grammar = GRAMMAR

    def make_source(self, source: SourceConfig) -> MakeSource:
        assert isinstance(source, ToySourceConfig)
        return lambda events, pool, metrics, columns, cluster: ToySource(source, events, pool, columns, cluster)

    def open_reader(
        self,
        connection: Connection,
        topics: TopicChoice,
        start: Start,
        pool: Pool,
        columns: frozenset[str] | None = None,
    ) -> TopicReader:
        return ToyReader(connection, topics, start, pool, columns)

    async def describe(self, connection: Connection, topics: TopicChoice) -> Described:
        link = await connect(connection.url)
        try:
            return Described([(name, len((await link.ask("topic", name))["ends"])) for name in topics.names], [])
        finally:
            link.close()

    def open_writer(
        self, connection: Connection, topic: str, options: WriteOptions
    ) -> AbstractAsyncContextManager[Writer]:
        refuse_create(options, "Toy")
        if options.compression not in (None, "NONE"):
            raise ValueError("Toy has no compression")
        return _open_writer(connection, topic)


SYSTEM = ToySystem()


class ToyReader:
    """See ``systems.base.TopicReader``: one connection a partition."""

    schemas = None
    share = None

    def __init__(
        self, connection: Connection, topics: TopicChoice, start: Start, pool: Pool, columns: frozenset[str] | None
    ) -> None:
        self._columns = columns
        self._url = connection.url
        self._topics = topics
        self._start = start
        self._pool = pool
        self._table = LogTable()
        self._ends: dict[Slot, int] = {}
        self._chunks: asyncio.Queue[Chunk | FastwireError] = asyncio.Queue()
        self._tasks = Tasks(lambda fault: self._chunks.put_nowait(FastwireError(fault)))

    async def open(self) -> None:
        link = await connect(self._url)
        try:
            for name in self._topics.names:
                for number, end in enumerate((await link.ask("topic", name))["ends"]):
                    named = self._start.positions.get(f"{name}/{number}")
                    begin = named.a if named is not None else end if self._start.kind == "latest" else 0
                    if named is None and self._start.offset is not None:
                        begin = max(0, end + self._start.offset)
                    slot = Slot(self._table.add_log(Log("toy", "", name, str(number))), number, begin)
                    self._ends[slot] = end
                    self._tasks.run(self._follow(slot, name), "toy reader")
        finally:
            link.close()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while True:
            found = await self._chunks.get()
            if isinstance(found, FastwireError):
                raise found
            yield found

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        while any(slot.offset < end for slot, end in self._ends.items()) or not self._chunks.empty():
            yield await anext(aiter(self))

    async def _follow(self, slot: Slot, topic: str) -> None:
        try:
            link = await connect(self._url, self._table, self._pool, self._chunks.put_nowait, columns=self._columns)
            try:
                while True:
                    await link.fetch(slot, topic)
            finally:
                link.close()
        except FastwireError as exc:
            self._chunks.put_nowait(exc)

    async def close(self) -> None:
        await self._tasks.close()


class ToyWriter:
    """See ``systems.writer.Writer``: each record is a request."""

    def __init__(self, link: Link, topic: str, partitions: int) -> None:
        self.topic = topic
        self.produced = Produced()
        self._link = link
        self._partitions = partitions
        self._turn = asyncio.Lock()  # the link takes one request at a time, in the order of the calls

    async def write(self, put: Put) -> None:
        await self._write([checked(put)])

    async def write_rows(self, rows: Rows) -> None:
        await self._write(puts_of(rows))

    async def _write(self, puts: Iterable[Put]) -> None:
        async with self._turn:
            for put in puts:
                storing = asyncio.ensure_future(self._store(put))
                try:
                    await asyncio.shield(storing)
                finally:
                    await asyncio.wait((storing,))  # also if the call is cancelled: the link waits for the answer

    async def _store(self, put: Put) -> None:
        if put.properties:
            raise ValueError("Toy has no properties")
        partition = self.produced.records % self._partitions if put.partition is None else put.partition
        if not 0 <= partition < self._partitions:
            raise ProduceError(f"{self.topic} has no partition {partition}: there are {self._partitions}")
        key = put.key.encode() if isinstance(put.key, str) else put.key
        await self._link.ask("produce", self.topic, partition=partition, key=_text(key), value=_text(put.value))
        self.produced.records += 1
        self.produced.entries += 1
        self.produced.bytes += len(put.value or b"")

    async def generate(self, load: Load) -> AsyncIterator[int]:
        for partition, numbers in load.parts():
            for number in numbers:
                await self.write(Put(load.record(number), key=load.key(number), partition=partition))
            yield len(numbers)

    async def flush(self) -> None:
        async with self._turn:
            pass  # what is written is confirmed

    def take_refused(self) -> list[Refused]:
        return []  # each write has its answer


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


@asynccontextmanager
async def _open_writer(connection: Connection, topic: str) -> AsyncIterator[Writer]:
    link = await connect(connection.url)
    try:
        yield ToyWriter(link, topic, len((await link.ask("topic", topic))["ends"]))
    finally:
        link.close()
