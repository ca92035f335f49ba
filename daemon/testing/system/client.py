"""Conformance tests of a system under the asyncio client of all systems."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from fastwire.columns.rows import Rows

from ...client import Client, Put, connect
from ...config import ConfigError
from .scene import PATIENCE_S, TOPIC, Row, Scene, rows_of
from .suite import SystemSuite, on_a_loop

WRONG: list[Any] = [
    b"v",
    Put("text"),  # type: ignore[arg-type]
    Put(b"v", key=5),  # type: ignore[arg-type]
    Put(b"v", key="\ud800"),
    Put(b"v", properties={"ab": "c"}),  # type: ignore[arg-type]
    Put(b"v", properties=[("a\ud800", "x")]),
    Put(b"v", properties=[("a", 5)]),  # type: ignore[list-item]
    Put(b"v", event_time=1.5),  # type: ignore[arg-type]
    Put(b"v", event_time=1 << 63),
    Put(b"v", partition="0"),  # type: ignore[arg-type]
]


class SystemClient(SystemSuite):
    """Programs that use ``fastwire_daemon.client``: the same calls for each system."""

    @on_a_loop
    async def test_a_client_reads_what_it_has_written(self, scene: Scene) -> None:
        """Records that ``write`` took are at the brokers when the block ends, and are read as Arrow columns."""
        client = connect(scene.broker.url)
        assert client.system == self.system
        async with client.produce(TOPIC) as writer:
            for number in range(100):
                await writer.write(Put(b"%d" % number, partition=number % 2))
            await writer.flush()
            assert writer.produced.records == 100
        rows = await _read(client, "earliest")
        for partition in (0, 1):
            values = [row.value for row in rows if row.partition == partition]
            assert values == [b"%d" % number for number in range(partition, 100, 2)]

    @on_a_loop
    async def test_a_client_reads_what_comes_later(self, scene: Scene) -> None:
        """A reader from the end gets only the records that are written while it is open."""
        client = connect(scene.broker.url)
        scene.produce(5)
        assert await _read(client, "latest") == []
        async with asyncio.timeout(PATIENCE_S), client.read(TOPIC, "latest") as reader:
            async with client.produce(TOPIC) as writer:
                await writer.write(Put(b"later"))
            async for chunk in reader:
                if chunk.rows:
                    assert [row.value for row in rows_of(pa.record_batch(chunk))] == [b"later"]
                    break

    @on_a_loop
    async def test_records_are_stored_in_the_order_of_the_calls(self, scene: Scene) -> None:
        """Calls of ``write`` and ``write_rows`` that wait together, some cancelled, pass none of each other."""
        count, size = 150, 6000
        client = connect(scene.broker.url)
        rows = [b"%06d" % number + bytes(size) for number in range(count, count + 100)]
        async with client.produce(TOPIC) as writer:
            calls = [
                asyncio.create_task(writer.write(Put(b"%06d" % number + bytes(size), partition=0)))
                for number in range(count)
            ]
            batch = pa.record_batch({"value": pa.array(rows), "partition": pa.array([0] * len(rows), pa.int32())})
            calls += [asyncio.create_task(writer.write_rows(Rows(batch.slice(at, 50)))) for at in (0, 50)]
            calls += [
                asyncio.create_task(writer.write(Put(b"999999", partition=0))),
                asyncio.create_task(writer.flush()),
            ]
            await asyncio.sleep(0)
            cancelled = {number for number in range(count) if number % 7 == 0 and calls[number].cancel()}
            await asyncio.gather(*calls, return_exceptions=True)
            assert calls[-1].exception() is None
            assert writer.produced.records >= count - len(cancelled) + len(rows) + 1, "flush waits for earlier calls"
        found = [int(row.value[:6]) for row in await _read(client, "earliest") if row.value is not None]
        assert found == sorted(found)
        assert set(found) >= {*range(count + len(rows)), 999999} - cancelled

    @pytest.mark.parametrize("put", WRONG, ids=repr)
    @on_a_loop
    async def test_a_record_with_parts_of_other_types_is_refused_alone(self, scene: Scene, put: Put) -> None:
        """``write`` raises ValueError for a part that is not of its type, and other records are stored."""
        client = connect(scene.broker.url)
        async with client.produce(TOPIC) as writer:
            await writer.write(Put(b"before"))
            with pytest.raises(ValueError):
                await writer.write(put)
            await writer.write(Put(bytearray(b"behind")))  # type: ignore[arg-type]
            await writer.flush()
        rows = await _read(client, "earliest")
        assert sorted(row.value or b"" for row in rows) == [b"before", b"behind"]

    @on_a_loop
    async def test_a_record_with_more_than_the_system_has_is_refused(self, scene: Scene) -> None:
        """``write`` raises ValueError that names the system for a part that it lacks, and stores nothing then."""
        parts = {
            "keys": Put(b"v", key="k"),
            "headers": Put(b"v", properties=(("name", "value"),)),
            "null values": Put(None, key=None if "keys" in self.lacks else "k"),
        }
        title = self._grammar.title
        client = connect(scene.broker.url)
        async with client.produce(TOPIC) as writer:
            for ability, put in parts.items():
                if ability in self.lacks:
                    with pytest.raises(ValueError, match=f"^{title} has no "):
                        await writer.write(put)
                else:
                    await writer.write(put)
        assert len(await _read(client, "earliest")) == len(parts.keys() - self.lacks.keys())

    def test_a_client_refuses_keys_that_the_system_lacks(self) -> None:
        """``connect`` raises ConfigError that names an unknown key, ``read`` ValueError for unnamed topics."""
        url = f"{self.system}://127.0.0.1"
        with pytest.raises(ConfigError, match="no_such_key"):
            connect(url, no_such_key=1)
        for topics, pattern in (((), None), (TOPIC, ".*")):
            with pytest.raises(ValueError, match="either topics or a pattern"):
                connect(url).read(topics, pattern=pattern)


async def _read(client: Client, start: str) -> list[Row]:
    """Return the records from ``start`` to the present end of the topic."""
    found: list[Row] = []
    async with asyncio.timeout(PATIENCE_S), client.read(TOPIC, start) as reader:
        async for chunk in reader.up_to_now():
            if chunk.rows:
                found += rows_of(pa.record_batch(chunk))
    return found
