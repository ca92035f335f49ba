"""The embedded Kafka broker with one topic that sends the same batches over and over, as fast as they are asked for.

    python -m bench.kafka_server --messages 1000000 --size 100 --batch 1000 --codec none --partitions 4

Prints one JSON line when it listens, as ``replay_server`` does. Everything but Fetch and ListOffsets is the broker's
own; those tell of VARIETY batches in turn, which nobody had to store.
"""

import asyncio
import json

import uvloop

from fastwire.kafka.format.message import Body, encode_response
from fastwire.kafka.producing.payload import Compression, encode_block_batch, encode_values
from fastwire.kafka.protocol.connection import Key
from fastwire.wire.writer import encode_varint
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.kafka.broker import HANDLERS
from fastwire_daemon.devbroker.kafka.connection import KafkaConnection
from fastwire_daemon.devbroker.kafka.requests import Request

from .message import Messages
from .replay_arguments import replay_arguments
from .replay_server import send_unpaced

TOPIC = "replay"
VARIETY = 64
TIME = 1_700_000_000_000
EARLIEST = -2
MARK = b"records stand here"


class Replay(KafkaDevBroker):
    """Partitions of ``count`` batches each."""

    def __init__(self, size: int, batch: int, codec: Compression, count: int, partitions: int) -> None:
        super().__init__(KafkaOptions(enforce=False))
        self.handlers = HANDLERS | {Key.FETCH: fetch, Key.LIST_OFFSETS: list_offsets}
        self.batch = batch
        self.end = count * batch
        source = Messages(size)
        # Behind the first offset, which no sum covers.
        self.rests = [
            encode_block_batch(
                encode_values([source.value(number * batch + row) for row in range(batch)], None),
                batch,
                base_timestamp=TIME + number,
                compression=codec,
            )[8:]
            for number in range(VARIETY)
        ]
        self.create_topic(TOPIC, partitions)

    def records(self, partition: int, offset: int, room: int) -> list[bytes]:
        """Return the records of a partition from ``offset`` on: whole batches in pieces, one at least."""
        found: list[bytes] = []
        for number in range(offset // self.batch, self.end // self.batch):
            rest = self.rests[(partition + number) % VARIETY]
            room -= 8 + len(rest)
            if found and room < 0:
                break
            found += ((number * self.batch).to_bytes(8), rest)
        return found


def fetch(connection: KafkaConnection, request: Request) -> Body | None:
    """Everything that was asked for, at once; at the end of everything, nothing, after a while."""
    broker = connection.broker
    assert isinstance(broker, Replay)
    room = request.body["max_bytes"]
    found: list[list[bytes]] = []
    responses = []
    for topic in request.body["topics"]:
        answers = []
        for one in topic["partitions"]:
            records: list[bytes] = []
            if room > 0:
                allowed = min(room, one["partition_max_bytes"])
                records = broker.records(one["partition"], one["fetch_offset"], allowed)
                room -= sum(map(len, records))
            found.append(records)
            answers.append(
                {
                    "partition_index": one["partition"],
                    "high_watermark": broker.end,
                    "last_stable_offset": broker.end,
                    "log_start_offset": 0,
                    "records": MARK,
                }
            )
        responses.append({**topic, "partitions": answers})
    parts = pieces(request, {"session_id": 0, "responses": responses}, found)
    if room < request.body["max_bytes"]:
        send(connection, parts)
    else:
        broker.loop.call_later(request.body["max_wait_ms"] / 1000, send, connection, parts)
    return None


def pieces(request: Request, body: Body, records: list[list[bytes]]) -> list[bytes]:
    """The frame of a response with ``records`` in the place of its marks, of which nothing is copied.

    Copying megabytes takes the cache and the memory from whoever is measured.
    """
    flexible = request.version >= request.api.flexible

    def sized(size: int) -> bytes:
        return encode_varint(size + 1) if flexible else size.to_bytes(4)

    frame = encode_response(request.api.key, request.version, request.correlation_id, body)[4:]
    head, *tails = frame.split(sized(len(MARK)) + MARK)
    parts = [head]
    for content, tail in zip(records, tails, strict=True):
        parts += (sized(sum(map(len, content))), *content, tail)
    return [sum(map(len, parts)).to_bytes(4), *parts]


def send(connection: KafkaConnection, parts: list[bytes]) -> None:
    """Answer the request at hand."""
    connection.queue(*parts)
    connection.done()


def list_offsets(connection: KafkaConnection, request: Request) -> Body:
    """Every partition begins at 0, and ends where all do."""
    broker = connection.broker
    assert isinstance(broker, Replay)
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {
                    "partition_index": one["partition_index"],
                    "timestamp": -1,
                    "offset": 0 if one["timestamp"] == EARLIEST else broker.end,
                    "leader_epoch": -1,  # a log that nobody stored has no epochs to ask for
                }
                for one in topic["partitions"]
            ],
        }
        for topic in request.body["topics"]
    ]
    return {"topics": topics}


async def serve(broker: Replay, partitions: int) -> None:
    """Until the process is ended."""
    await broker.start()
    for listener in broker.listening:
        send_unpaced(listener)
    told = {
        "url": broker.url,
        "port": broker.port,
        "topic": TOPIC,
        "messages": broker.end * partitions,
        "batch_bytes": 8 + len(broker.rests[0]),
    }
    print(json.dumps(told), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve."""
    args = replay_arguments(__doc__, [codec.name.lower() for codec in Compression])
    broker = Replay(args.size, args.batch, Compression[args.codec.upper()], args.count, args.partitions)
    uvloop.run(serve(broker, args.partitions))  # it writes many pieces at once without joining them


if __name__ == "__main__":
    main()
