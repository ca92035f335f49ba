"""Conformance tests of a system's reader, writer and description of topics: the commands around the daemon."""

import asyncio

import pyarrow as pa
import pytest

from fastwire.errors import FastwireError
from fastwire.wire.pool import Pool

from ...systems.base import TopicReader
from ...systems.load import Load
from ...systems.produced import ProduceError
from ...systems.writer import Put, WriteOptions
from .scene import GROUP, PARTITIONS, PATIENCE_S, TOPIC, Row, Scene, rows_of
from .suite import SystemSuite, on_a_loop


class SystemTools(SystemSuite):
    """The commands ``tail``, ``produce`` and ``check --connect``."""

    @on_a_loop
    async def test_a_reader_ends_and_goes_on(self, scene: Scene) -> None:
        """A reader returns all records up to the end at its opening, or goes on; it leaves nothing at the broker."""
        scene.produce(20, 0)
        scene.produce(20, 1)
        assert sorted(row.value or b"" for row in await self._read(scene)) == sorted(scene.produced)
        later = [row.value for row in await self._read(scene, 40, later=10)][40:]
        assert later == scene.produced[40:]
        with pytest.raises(KeyError):
            scene.broker.backlog(TOPIC, GROUP)

    @on_a_loop
    async def test_a_reader_begins_before_the_end(self, scene: Scene) -> None:
        """A start such as "-3" is three records, or batches, before the end of a partition, or of all that it has."""
        for partition in (1, 0, 0, 0, 0):
            scene.produce(2, partition)
        rows = await self._read(scene, start="-3")
        lasts = [row.value for row in rows if row.partition == 0]
        assert 3 <= len(lasts) < 8 and lasts == scene.produced[-len(lasts) :]
        assert len(await self._read(scene, start="-99")) == len(scene.produced)

    @on_a_loop
    async def test_what_is_written_is_read(self, scene: Scene) -> None:
        """Keys, values and partitions of written records are read again, and the writer counts what is confirmed."""
        puts = [Put(b"value %d" % number, key=b"key %d" % number, partition=number % 2) for number in range(20)]
        puts += [Put(b"", partition=0), Put(b"\0\xff" * 1000, key=b"\xff", partition=1)]
        if "keys" in self.lacks:
            puts = [put._replace(key=None) for put in puts]
        for batch in (0, 1, 7):
            await self._write(scene, puts, batch=batch)
        rows = await self._read(scene)
        assert len(rows) == 3 * len(puts)
        for put in puts:
            assert sum((row.value, row.key, row.partition) == (put.value, put.key, put.partition) for row in rows) == 3

    @on_a_loop
    async def test_headers_are_read_again(self, scene: Scene) -> None:
        """The headers of written records are read again in their order."""
        self._needs("headers")
        given = (("trace", "1"), ("ä", "ö"))
        await self._write(scene, [Put(b"v", properties=given)])
        (row,) = await self._read(scene)
        assert sorted(row.headers) == sorted((key, value.encode()) for key, value in given)

    @on_a_loop
    async def test_null_values_are_read_again(self, scene: Scene) -> None:
        """A record without a value (a tombstone) is one with an empty value neither when written nor when read."""
        self._needs("null values")
        await self._write(scene, [Put(None, key="k", partition=0), Put(b"", key="k", partition=0)])
        assert [row.value for row in await self._read(scene)] == [None, b""]

    @on_a_loop
    async def test_a_load_is_written(self, scene: Scene) -> None:
        """``generate`` writes each record of a load once."""
        load = Load(records=1000, partitions=2, batch=70)
        options = WriteOptions(batch=load.batch)
        async with self._system.open_writer(scene.source(), TOPIC, options) as writer:
            assert sum([count async for count in writer.generate(load)]) == 1000
            await writer.flush()
            assert writer.produced.records == 1000
        rows = await self._read(scene)
        assert sorted(row.value or b"" for row in rows) == sorted(map(load.record, range(1000)))

    @on_a_loop
    async def test_an_unknown_partition_is_refused(self, scene: Scene) -> None:
        """A record for a partition that does not exist raises ProduceError that names it, and the writer goes on."""
        async with self._system.open_writer(scene.source(), TOPIC, WriteOptions()) as writer:
            with pytest.raises(ProduceError, match="partition 2"):
                await writer.write(Put(b"v", partition=2))
            await writer.write(Put(b"v", partition=1))
        assert [row.value for row in await self._read(scene)] == [b"v"]

    @on_a_loop
    async def test_topics_are_described(self, scene: Scene) -> None:
        """``describe`` returns the topic with its partitions and no trouble, and creates nothing."""
        source = scene.source()
        sharing = self._system.sharing(source)
        assert GROUP in sharing if "groups" not in self.lacks else sharing
        described = await self._system.describe(source, source.chosen)
        assert described == ([(self._grammar.topic(TOPIC), PARTITIONS)], [])
        with pytest.raises(KeyError):
            scene.broker.backlog(TOPIC, GROUP)

    @on_a_loop
    async def test_an_unknown_topic_is_refused(self, scene: Scene) -> None:
        """``describe`` raises FastwireError that names an unknown topic, and creates none."""
        source = scene.source(topics=["unknown"])
        with pytest.raises(FastwireError, match="unknown"):
            await self._system.describe(source, source.chosen)
        with pytest.raises(KeyError):
            scene.broker.end_positions("unknown")

    # --- parts of the tests

    async def _write(self, scene: Scene, puts: list[Put], batch: int = 1) -> None:
        options = WriteOptions(batch=batch)
        async with self._system.open_writer(scene.source(), TOPIC, options) as writer:
            for put in puts:
                await writer.write(put)
            await writer.flush()
            assert writer.produced.records == len(puts)
            assert writer.topic in (TOPIC, self._grammar.topic(TOPIC))

    async def _read(self, scene: Scene, rows: int = 0, later: int = 0, start: str = "earliest") -> list[Row]:
        """Return the records up to now; with ``later`` read ``rows``, produce so many more and return them, too."""
        source = scene.source()
        first = self._system.start_of(start, source.chosen)
        reader: TopicReader = self._system.open_reader(source, source.chosen, first, Pool(64 << 20))
        found: list[Row] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                await reader.open()
                async for chunk in reader if later else reader.up_to_now():
                    if chunk.rows:
                        found += rows_of(pa.record_batch(chunk))
                    chunk.release()
                    if later and len(found) == rows:
                        scene.produce(later)
                    if later and len(found) == rows + later:
                        break
        finally:
            await reader.close()
        return found
