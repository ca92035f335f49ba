"""The receive buffer: written over and over, grown for a frame, never moved under a view."""

import asyncio
import gc

import pytest

from fastwire.columns.scan import Stop
from fastwire.pulsar.format.payload import Record, encode_single_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.wire.pool import Pool
from fastwire.wire.receive import ReceiveBuffer
from tests.support import golden
from tests.support.loops import BOTH
from tests.support.pulsar.frames import Seen, drain, feed, message_frame, put, scanner

MIB = 1 << 20
LEAST_FREE = 65_536


def test_what_is_written_is_there() -> None:
    pool = Pool(1 << 30)
    buffer = ReceiveBuffer(pool, MIB)
    assert len(buffer) == 0
    view = buffer.writable()
    assert (len(view), view.readonly, view.format, view.itemsize) == (MIB, False, "B", 1)
    view[:5] = b"hello"
    view.release()
    buffer.commit(5)
    assert len(buffer) == 5
    assert len(buffer.writable()) == MIB - 5


def test_the_free_part_is_never_small() -> None:
    buffer = ReceiveBuffer(Pool(1 << 30), MIB)
    for _ in range(100):
        free = len(buffer.writable())
        assert free >= LEAST_FREE
        buffer.commit(min(free, 50_000))
    assert len(buffer) == 5_000_000


@pytest.mark.parametrize("count", [-1, MIB + 1, 1 << 62])
def test_more_than_was_offered_cannot_have_been_written(count: int) -> None:
    buffer = ReceiveBuffer(Pool(1 << 30), MIB)
    buffer.writable()
    with pytest.raises(ValueError, match=f"{count} bytes do not fit the buffer"):
        buffer.commit(count)
    assert len(buffer) == 0


def test_it_does_not_move_under_a_view() -> None:
    buffer = ReceiveBuffer(Pool(1 << 30), 100_000)
    view = buffer.writable()
    buffer.commit(len(view))
    with pytest.raises(BufferError, match="cannot move while a view of it is out"):
        buffer.writable()
    view.release()
    assert len(buffer.writable()) >= LEAST_FREE
    assert len(buffer) == 131_072


def test_it_is_not_a_collectors_business() -> None:
    # Its __dealloc__ needs the pool: a collector that clears attributes first would leave it without.
    assert not gc.is_tracked(ReceiveBuffer(Pool(1 << 30), MIB))


def test_a_frame_is_carried_over_once_and_the_place_stays() -> None:
    """A stream of small frames never makes the buffer larger."""
    pool = Pool(1 << 30)
    to, slots = scanner(pool, columns=frozenset({"value"}))
    entry = encode_single_entry(Record(value=bytes(3000)), producer_name="p", sequence_id=0, publish_time=1)
    data = b"".join(message_frame(entry.body, entry=number) for number in range(2000))
    seen = feed(to, data)
    assert len(seen.rows) == 2000
    assert to.buffered == 0
    del seen, slots
    assert pool.used == MIB


def large_frame(size: int, number: int = 0) -> bytes:
    entry = encode_single_entry(Record(value=b"v" * size), producer_name="p", sequence_id=0, publish_time=1)
    return message_frame(entry.body, entry=number)


@pytest.mark.parametrize("size", [60_000, 900_000, 3 * MIB])
def test_it_grows_to_a_frame_and_shrinks_behind_it(size: int) -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool, buffer_bytes=1 << 17)
    idle = pool.used
    frame = large_frame(size)
    assert feed(to, frame).rows[0]["value"] == b"v" * size
    to.get_buffer()
    assert pool.used == idle


def test_it_grows_as_bytes_come_and_not_as_they_are_announced() -> None:
    """A header of 8 bytes must not take memory from everybody else."""
    pool = Pool(1 << 30)
    to, _ = scanner(pool, buffer_bytes=1 << 17, max_message_size=1 << 28)
    frame = large_frame(6 * MIB)
    announced = (1 << 28).to_bytes(4, "big") + frame[4:]
    came = 8
    put(to, announced[:came])
    while came < 6 * MIB:
        assert Stop(to.scan()) is Stop.NEED_BYTES
        free = to.get_buffer()
        # While the buffer grows there are two of them.
        assert pool.used <= max(1 << 17, 4 * came)
        count = min(len(free), 50_000, len(announced) - came)
        free[:count] = announced[came : came + count]
        free.release()
        to.received(count)
        came += count
    assert pool.peak <= 8 * MIB + 4 * MIB


def test_what_a_frame_has_had_is_reserved_at_once_for_the_next() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool, buffer_bytes=1 << 17)
    frame = large_frame(3 * MIB)
    feed(to, frame)
    frame = large_frame(3 * MIB, 1)
    put(to, frame[:1000])
    assert Stop(to.scan()) is Stop.NEED_BYTES
    assert len(to.get_buffer()) >= 2 * MIB
    assert feed(to, frame[1000:]).rows[0]["value"] == b"v" * (3 * MIB)


def test_an_idle_connection_gives_its_buffer_back() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    frame = large_frame(3 * MIB)
    feed(to, frame)
    to.rest()  # something has come since the last one
    assert pool.used >= 4 * MIB
    to.rest()
    to.drop_chunk()
    assert pool.used == 0
    to.rest()
    assert Stop(to.scan()) is Stop.NEED_BYTES
    frame = large_frame(3 * MIB, 1)
    put(to, frame[:1000])
    to.rest()
    to.rest()  # what has come of a frame stays
    assert pool.used > 0
    assert feed(to, frame[1000:]).rows[0]["value"] == b"v" * (3 * MIB)
    view = to.get_buffer()
    to.rest()
    to.rest()  # somebody is about to write into it
    view[:] = bytes(len(view))
    view.release()
    to.rest()
    assert pool.used == 0


def test_a_connection_that_is_not_read_gives_back_what_its_bytes_do_not_need() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool, buffer_bytes=1 << 17)
    frame = large_frame(3 * MIB)
    feed(to, frame)
    to.drop_chunk()
    frame = large_frame(3 * MIB, 1)
    put(to, frame[: 1 << 16])
    assert Stop(to.scan()) is Stop.NEED_BYTES
    growths = to.growths
    view = to.get_buffer()
    assert to.growths == growths + 1
    to.shrink()
    assert pool.used == pool.receiving == 4 * MIB  # somebody is about to write into it
    view.release()
    to.shrink()
    assert pool.used == pool.receiving == 1 << 17
    assert feed(to, frame[1 << 16 :]).rows[0]["value"] == b"v" * (3 * MIB)
    to.drop_chunk()
    assert pool.used == pool.receiving > 0
    del to
    assert pool.used == pool.receiving == 0


def test_nothing_is_reserved_for_a_frame_that_is_only_announced_too_large() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    put(to, b"\x7f\xff\xff\xff\x00\x00\x00\x00")
    with pytest.raises(Exception, match="totalSize"):
        to.scan()
    to.get_buffer()
    assert pool.peak == MIB


class Receiver(asyncio.BufferedProtocol):
    """The daemon's way: bound methods of the compiled object as instance attributes."""

    def __init__(self, to: Scanner) -> None:
        self.scanner = to
        self.seen = Seen()
        self.lost = asyncio.get_running_loop().create_future()
        self.get_buffer = to.get_buffer  # type: ignore[method-assign]

    def buffer_updated(self, nbytes: int) -> None:
        self.scanner.received(nbytes)
        drain(self.scanner, self.seen)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


@BOTH
async def test_both_event_loops_write_into_it() -> None:
    entry = encode_single_entry(Record(value=bytes(2 * MIB)), producer_name="p", sequence_id=0, publish_time=1)
    parts = [message_frame(entry.body, entry=0), golden.load("pulsar_e09_ping"), message_frame(entry.body, entry=1)]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    to, _ = scanner()
    _, receiver = await asyncio.get_running_loop().create_connection(
        lambda: Receiver(to), *server.sockets[0].getsockname()
    )
    await receiver.lost
    server.close()
    await server.wait_closed()
    seen = receiver.seen
    seen.take(to.take_chunk())
    assert [len(row["value"] or b"") for row in seen.rows] == [2 * MIB] * 2
    assert seen.commands == [parts[1][8:]]
