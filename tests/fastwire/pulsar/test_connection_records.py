"""Records of a connection: in the order of the wire, as many as fit one turn, damaged ones in their place."""

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import encode_command
from fastwire.pulsar.format.payload import Compression
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.protocol.event import ActiveChanged, ChunkReady, EntryRejected, More
from tests.support.pulsar.connection_scene import CONSUMER, C, Wire, batch, part_of_chunked


def test_wire_order_is_kept_between_chunks_and_commands() -> None:
    wire = Wire()
    wire.ready()
    full = [wire.entry(batch(number, rows=6000), number) for number in range(4)]
    change = pb.CommandActiveConsumerChange(consumer_id=CONSUMER)
    command = encode_command(C(type=C.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change))
    events = wire.feed(b"".join([*full[:3], command, full[3], command]))
    kinds = [type(event) for event in events if not isinstance(event, More)]
    assert kinds == [ChunkReady, ActiveChanged, ActiveChanged]
    assert events[0].chunk.rows == 12000
    assert wire.connection.open_since == wire.now
    rest = wire.connection.take_chunk()
    assert rest is not None
    assert rest.rows == 12000
    assert wire.connection.open_since is None
    assert wire.slots.debited(CONSUMER) == 24000


def test_the_output_of_one_turn_is_bounded() -> None:
    wire = Wire()
    wire.ready()
    data = b"".join(wire.entry(batch(n, rows=100, size=20_000, compression=Compression.ZSTD), n) for n in range(12))
    view = wire.connection.get_buffer(-1)
    view[: len(data)] = data
    view.release()
    events = list(wire.connection.receive(len(data), wire.now))
    assert isinstance(events[-1], More)
    assert wire.connection.more
    rows = sum(event.chunk.rows for event in events if isinstance(event, ChunkReady))
    assert rows < 1200
    turns = 1
    while wire.connection.more:
        events = list(wire.connection.receive(0, wire.now))
        rows += sum(event.chunk.rows for event in events if isinstance(event, ChunkReady))
        turns += 1
    assert turns == 3
    last = wire.connection.take_chunk()
    assert rows + (last.rows if last else 0) == 1200


def test_an_entry_that_is_not_decoded_is_a_dead_letter_in_its_place() -> None:
    wire = Wire()
    wire.ready()
    events = wire.feed(wire.entry(batch(0), 0) + wire.entry(part_of_chunked(), 1) + wire.entry(batch(2), 2))
    (rejected,) = events
    assert isinstance(rejected, EntryRejected)
    assert (rejected.entry.entry, rejected.entry.reason) == (1, "Chunked")
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    assert chunk.rows == 20
    assert [letter.position for letter in chunk.dead_letters] == [Position(7, 1)]
    (span,) = chunk.spans()
    assert (span.start, span.end) == (PULSAR_EARLIEST, Position(7, 2))


def test_without_dead_letters_the_driver_decides_before_anything_else() -> None:
    wire = Wire(keeps_corrupt=False)
    wire.ready()
    data = wire.entry(batch(0), 0) + wire.entry(part_of_chunked(), 1) + wire.entry(batch(2), 2)
    view = wire.connection.get_buffer(-1)
    view[: len(data)] = data
    view.release()
    events = wire.connection.receive(len(data), wire.now)
    assert [type(event) for event in events] == [EntryRejected, More]
    wire.slots.detach(CONSUMER)
    assert wire.connection.receive(0, wire.now) == ()
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    assert chunk.rows == 10
    (span,) = chunk.spans()
    assert span.end == Position(7, 0)
