"""Writer that a broker's deduplication makes exactly once (spec: pulsar 24).

A stream has a producer of its name in each partition of the topic. The broker keeps the number of the last record that
it has taken for a name, and tells it when the producer is opened. Records up to it are sent all the same, in entries of
their own, because the number does not tell what became of them: the broker may still be storing them for a connection
that is gone, and it has refused some for their size. Its answer to each entry tells: it has it, does not know yet, or
refuses it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError
from fastwire.pulsar.format.payload import Compression, Record
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.producing.batcher import Batching, BatchLimits
from fastwire.pulsar.producing.router import Hashing, Router
from fastwire.pulsar.producing.settings import ProducerSettings

from ...config import Connection
from ..produced import Produced, ProduceError, Refused
from ..sequenced import NotDeduplicated
from ..writer import WriteOptions, codec_named, puts_of
from .cluster import ClientCluster
from .producer import TopicProducer
from .settings import ClientSettings, client_fields
from .turn import in_turn
from .writer import record_of_put

IDLE_S = 10.0  # a stream that another daemon writes now is let go
LOOSE_RUN = 1 << 12  # numbers of records without a key that go to the same partition


@dataclass(slots=True)
class _Stream:
    producer: TopicProducer
    used_at: float
    last: dict[int, int] = field(default_factory=dict)
    """The last number that was sent, by the place of the partition."""


class PulsarSequencedWriter:
    """Implementation of ``SequencedWriter`` for Pulsar. ``make`` returns a producer of a name, for some partitions."""

    def __init__(
        self, topic: str, make: Callable[[str, int], TopicProducer], partitions: int, hashing: Hashing
    ) -> None:
        self.topic = topic
        self.produced = Produced()
        self._make = make
        self._partitions = self._there = partitions
        self._router = Router(max(partitions, 1), hashing=hashing)
        self.unknown: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._refused: list[Refused] = []
        self._proved = False  # a broker has told a number, and none has lost one since
        self._written: set[str] = set()  # streams of which the brokers have confirmed records to this writer
        self._turn = asyncio.Lock()  # of the call that opens, writes or closes

    @property
    def routing(self) -> tuple[str, ...]:
        """The number of partitions (0: the topic has none) and the hash of keys."""
        return str(self._partitions), self._router.hashing.value

    def use(self, routing: tuple[str, ...]) -> None:
        """See ``SequencedWriter.use``: partitions that were added later get no records."""
        count, hashing = int(routing[0]), routing[1]
        if hashing != self._router.hashing.value:
            raise ValueError(f"keys were mapped to partitions by {hashing}, not by {self._router.hashing.value}")
        if count > self._there or (count == 0) != (self._there == 0):
            raise ValueError(f"{self.topic} had {count} partitions, and has {self._there} now")
        self._partitions = count
        self._router.partitions = max(count, 1)

    async def write_numbered(self, rows: Rows, stream: str, numbers: Sequence[int]) -> None:
        """See ``SequencedWriter.write_numbered``."""
        records = [
            replace(record_of_put(put), sequence_id=number) for put, number in zip(puts_of(rows), numbers, strict=True)
        ]  # all are looked at before one is sent
        async with self._turn:
            known = await self._stream_of(stream)
            for row, record in enumerate(records):
                place = self._place(record)
                number = numbers[row]
                if number <= known.last.get(place, -1):
                    raise ProduceError(f"a fault of this program: the number {number} comes after {known.last[place]}")
                known.last[place] = number
                await known.producer.post(record, rows.origin + row if rows.origin >= 0 else None, place)
            known.used_at = asyncio.get_running_loop().time()

    def _place(self, record: Record) -> int:
        if self._router.partitions == 1:
            return 0
        if record.key is not None:
            return self._router.of_key(record.key)
        assert record.sequence_id is not None
        return record.sequence_id // LOOSE_RUN % self._router.partitions

    async def _stream_of(self, name: str) -> _Stream:
        known = self._streams.get(name)
        if known is None:
            producer = await self._open(name)
            known = self._streams[name] = _Stream(producer, 0.0)
            if any(producer.last_stored(place) >= 0 for place in range(producer.places)):
                self._proved = True
            else:
                self.unknown.add(name)
                if name in self._written:  # it was forgotten, or the brokers do not deduplicate any more
                    self._proved = False
        return known

    async def _open(self, name: str) -> TopicProducer:
        """Open the producers of a stream, when those of another process are gone."""

        async def attempt() -> TopicProducer:
            producer = self._make(name, self._partitions)
            producer.produced = self.produced
            try:
                await producer.open()
            except FastwireError:
                await producer.close()
                raise
            return producer

        return await in_turn(attempt)

    async def flush(self) -> None:
        """See ``Writer.flush``; the first batch of a topic is followed by a question for its number."""
        async with self._turn:
            for name, stream in list(self._streams.items()):
                await stream.producer.flush()
                self._refused += stream.producer.take_refused()
                if not stream.last:
                    continue
                self._written.add(name)
                if not self._proved:
                    await self._prove(name, stream)

    async def _prove(self, name: str, stream: _Stream) -> None:
        """Open the producers of a stream anew, and look whether the broker tells the numbers of what it has stored."""
        del self._streams[name]
        await stream.producer.close()
        again = await self._stream_of(name)
        if not self._proved and not self._refused:
            places = [place for place, last in stream.last.items() if again.producer.last_stored(place) < last]
            if places:
                raise NotDeduplicated(
                    f"the brokers do not deduplicate {self.topic}: enable it for the namespace "
                    "(pulsar-admin namespaces set-deduplication --enable) or all topics (brokerDeduplicationEnabled), "
                    "or set delivery to at-least-once"
                )

    def take_refused(self) -> list[Refused]:
        """See ``Writer.take_refused``."""
        refused, self._refused = self._refused, []
        return refused

    async def release_idle(self) -> None:
        """Close the producers of streams that are not written any more, until this is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(IDLE_S / 2)
            async with self._turn:
                for name, stream in list(self._streams.items()):
                    if loop.time() - stream.used_at >= IDLE_S and stream.producer.idle:
                        del self._streams[name]
                        await stream.producer.close()

    async def close(self) -> None:
        """Close all producers; unconfirmed records are dropped, or stored."""
        streams, self._streams = self._streams, {}
        await asyncio.gather(*(stream.producer.close() for stream in streams.values()))


def open_sequenced(
    connection: Connection, topic: str, options: WriteOptions
) -> AbstractAsyncContextManager[PulsarSequencedWriter]:
    """See ``System.open_sequenced``."""
    keys = Batching(options.batching)
    if keys is Batching.GROUPED:
        raise ValueError('batching = "grouped" changes the order of records, whose numbers must rise')
    settings = ProducerSettings(
        compression=codec_named(Compression, options.compression, "Pulsar"),
        batching=BatchLimits(messages=max(options.batch, 1), keys=keys),
        chunking=True,
        send_timeout_s=None,
        keeps_numbers=True,
    )
    return _open(ClientSettings(**client_fields(connection)), topic, settings, Hashing(options.hashing))


@asynccontextmanager
async def _open(
    client: ClientSettings, name: str, settings: ProducerSettings, hashing: Hashing
) -> AsyncIterator[PulsarSequencedWriter]:
    topic = parse_topic(name)
    async with ClientCluster(client) as cluster:

        def make(stream: str, partitions: int) -> TopicProducer:
            return TopicProducer(
                cluster,
                client.url,
                topic,
                replace(settings, name=stream),
                partitions=partitions,
                operation_timeout_s=client.operation_timeout_s,
            )

        count = 0 if topic.partition >= 0 else await cluster.partitions(str(topic), client.url)
        writer = PulsarSequencedWriter(str(topic), make, count, hashing)
        releasing = asyncio.create_task(writer.release_idle())
        try:
            yield writer
        finally:
            releasing.cancel()
            with suppress(asyncio.CancelledError):
                await releasing
            await writer.close()
