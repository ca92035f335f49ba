"""The embedded TANK broker with one topic that sends the same bundles over and over, as fast as they are asked for.

    python -m bench.tank_server --messages 1000000 --size 100 --batch 1000 --codec none --partitions 4

Prints one JSON line when it listens, as ``replay_server`` does. Everything but consuming and discovering partitions is
the broker's own; those tell of VARIETY bundles in turn, which nobody had to store.
"""

import asyncio
import json
from struct import pack

import uvloop

from fastwire.tank.format.message import DiscoverPartitions, MessageType, PartitionRange, PartitionRanges, encode_str8
from fastwire.tank.producing.bundle import encode_values
from fastwire.tank.protocol.consume import ConsumeRequest
from fastwire.wire.writer import encode_varint
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.devbroker.tank.broker import HANDLERS
from fastwire_daemon.devbroker.tank.connection import TankConnection

from .message import Messages
from .replay_arguments import replay_arguments
from .replay_server import send_unpaced

TOPIC = "replay"
VARIETY = 64
TIME = 1_700_000_000_000


class Replay(TankDevBroker):
    """Partitions of ``count`` bundles each."""

    def __init__(self, size: int, batch: int, codec: str, count: int, partitions: int) -> None:
        super().__init__(TankOptions())
        self.batch = batch
        self.last = count * batch
        source = Messages(size)
        self.bundles = []
        for number in range(VARIETY):
            values = [source.value(number * batch + row) for row in range(batch)]
            bundle = encode_values(values, TIME + number, compress=codec == "snappy")
            self.bundles.append(encode_varint(len(bundle)) + bundle)
        self.create_topic(TOPIC, partitions)

    def _connect(self, node: int) -> TankConnection:
        own = {MessageType.CONSUME: consume, MessageType.DISCOVER_PARTITIONS: ranges}
        return TankConnection(self, node, HANDLERS | own)

    def read(self, partition: int, sequence: int, room: int) -> tuple[int, list[bytes]]:
        """Return the first sequence and the bundles of a chunk: whole bundles, one at least, as far as there are."""
        first = (sequence - 1) // self.batch
        found: list[bytes] = []
        for number in range(first, self.last // self.batch):
            bundle = self.bundles[(partition + number) % VARIETY]
            room -= len(bundle)
            if found and room < 0:
                break
            found.append(bundle)
        return first * self.batch + 1, found


def replay_of(connection: TankConnection) -> Replay:
    """Return the broker of a connection."""
    assert isinstance(connection.broker, Replay)
    return connection.broker


def consume(connection: TankConnection, payload: bytes) -> None:
    """Answer with everything that was asked for, at once; at the end of everything with nothing, after a while."""
    broker = replay_of(connection)
    request_id, request = ConsumeRequest.decode(payload)
    header = [pack("<IB", request_id, len(request.topics))]
    chunks: list[bytes] = []
    for name, partitions in request.topics:
        header += (encode_str8(name.encode()), bytes((len(partitions),)))
        for one in partitions:
            base, bundles = broker.read(one.partition, one.sequence, one.fetch_bytes)
            header.append(pack("<HBQQI", one.partition, 0, base, broker.last, sum(map(len, bundles))))
            chunks += bundles
    size = sum(map(len, header))
    # The chunks go out as they are: copying megabytes takes the cache and the memory from whoever is measured.
    parts = [pack("<BII", request.kind, 4 + size + sum(map(len, chunks)), size), *header, *chunks]
    if chunks or not request.max_wait_ms:
        connection.queue(*parts)
    else:
        broker.loop.call_later(request.max_wait_ms / 1000, connection.queue, *parts)


def ranges(connection: TankConnection, payload: bytes) -> None:
    """Answer that every partition begins at 1, and ends where all do."""
    broker = replay_of(connection)
    request_id, request = DiscoverPartitions.decode(payload)
    found = PartitionRange(1, broker.last)
    known = tuple(found for _ in broker.topics.get(request.topic, ()))
    connection.answer(request.kind, PartitionRanges(request.topic, known).encode(request_id))


async def serve(broker: Replay, partitions: int) -> None:
    """Serve until the process is ended."""
    await broker.start()
    for listener in broker.listening:
        send_unpaced(listener)
    told = {
        "url": broker.url,
        "port": broker.port,
        "topic": TOPIC,
        "messages": broker.last * partitions,
        "batch_bytes": len(broker.bundles[0]),
    }
    print(json.dumps(told), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve."""
    args = replay_arguments(__doc__, ["none", "snappy"])
    broker = Replay(args.size, args.batch, args.codec, args.count, args.partitions)
    uvloop.run(serve(broker, args.partitions))  # it writes many pieces at once without joining them


if __name__ == "__main__":
    main()
