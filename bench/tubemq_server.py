"""The embedded TubeMQ with one topic whose GETs are answered with the same messages over and over.

    python -m bench.tubemq_server --messages 1000000 --size 100 --batch 3450 --partitions 4

Prints one JSON line when it listens, as ``replay_server`` does. Each partition has a store of its own. Everything but
the response to a GET is the embedded Master's and Broker's own; that consists of blocks that were prepared, and of a
last one with the offset.
"""

import asyncio
import json
from struct import pack, unpack_from

import uvloop

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.frame import (
    BLOCK_BYTES,
    TOKEN,
    Method,
    Service,
    decode_request,
    encode_frame,
    encode_response,
)
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.devbroker.tubemq.broker import HANDLERS
from fastwire_daemon.devbroker.tubemq.connection import TubeMQConnection, answer
from fastwire_daemon.devbroker.tubemq.topics import Batch, Store, Topic

from .message import Messages
from .replay_arguments import replay_arguments
from .replay_server import send_unpaced
from .tubemq_batch import ENTRY, response

TOPIC = "replay"
VARIETY = 16
FIRST = ENTRY * (1 << 31)  # offsets from here on have 6 bytes, so that all responses are of one size
HEAD = 12


class ReplayStore(Store):
    """A store of ``count`` responses."""

    def __init__(self, count: int, batch: int) -> None:
        super().__init__()
        self.first = FIRST
        self.step = batch * ENTRY
        self._end = FIRST + count * self.step

    @property
    def end(self) -> int:
        return self._end

    def read(self, partition: int, offset: int, limit: int, types: object) -> Batch:
        """Return where a whole response begins, without its messages."""
        return Batch(offset, [], self.step)


class Replay(TubeMQDevBroker):
    """Partitions of ``count`` responses each."""

    def __init__(self, size: int, batch: int, count: int, partitions: int) -> None:
        super().__init__(TubeMQOptions())
        topic = self.topics[TOPIC] = Topic(TOPIC, partitions, 1)
        self.stores = [ReplayStore(count, batch) for _ in range(partitions)]
        topic.stores[:] = self.stores
        self.messages = count * batch * partitions
        source = Messages(size)
        replies = [
            response(source, batch, FIRST + number * batch * ENTRY, self.stores[0].end) for number in range(VARIETY)
        ]
        longest = max(reply.ByteSize() for reply in replies)
        for reply in replies:  # check sums have four or five bytes: the text makes all responses as long
            reply.errMsg += " " * (longest - reply.ByteSize())
        self.heads = [self._head(reply) for reply in replies]
        (head_bytes,) = {len(blocks) for _, blocks in self.heads}
        self.frame_bytes = HEAD + head_bytes + 4 + len(self._tail(FIRST))

    def _tail(self, offset: int) -> bytes:
        """Return the fields of a response behind its messages."""
        tail = response(Messages(0), 0, offset, self.stores[0].end)
        for field in ("success", "errCode", "errMsg"):
            tail.ClearField(field)
        return tail.SerializePartialToString()

    def _head(self, reply: pb.GetMessageResponseB2C) -> tuple[int, bytes]:
        """Return the number of the blocks before the tail, and their bytes."""
        frame = encode_response(0, Method.GET, reply)
        at, content = HEAD, b""
        while at < len(frame):
            (block,) = unpack_from(">I", frame, at)
            content += frame[at + 4 : at + 4 + block]
            at += 4 + block
        content = content.removesuffix(self._tail(reply.currOffset))
        return -(-len(content) // BLOCK_BYTES), encode_frame(0, content)[HEAD:]

    def _connect(self, services: frozenset[Service]) -> TubeMQConnection:
        return ReplayConnection(self, services, HANDLERS)


class ReplayConnection(TubeMQConnection):
    """Answers a GET with blocks as they are: copying them takes the cache and the memory from what is measured."""

    broker: Replay

    def _handle(self, serial: int, content: bytes) -> None:
        request = decode_request(content)
        if request.method is not Method.GET:
            super()._handle(serial, content)
            return
        body = request.body
        assert isinstance(body, pb.GetMessageRequestC2B)
        progress = self.broker.progress[body.groupName, body.topicName, body.partitionId]
        batch = progress.read(body.partitionId, 0, manual=body.manualCommitOffset, confirm=body.lastPackConsumed)
        if batch is None:
            missed = answer(pb.GetMessageResponseB2C, Code.NOT_FOUND, "The request offset reached maxOffset!")
            self.queue(encode_response(serial, Method.GET, missed))
            return
        count, blocks = self.broker.heads[(batch.offset - FIRST) // batch.scanned % VARIETY]
        tail = self.broker._tail(batch.offset)
        self.queue(pack(">III", TOKEN, serial, count + 1), blocks, pack(">I", len(tail)), tail)


async def serve(broker: Replay) -> None:
    """Serve until the process is ended."""
    await broker.start()
    for listener in broker.listening:
        send_unpaced(listener)
    told = {
        "url": broker.url,
        "port": broker.port,
        "broker": f"{broker.host}:{broker.ports[1]}",
        "topic": TOPIC,
        "messages": broker.messages,
        "batch_bytes": broker.frame_bytes,
    }
    print(json.dumps(told), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve."""
    args = replay_arguments(__doc__, ["none"])
    broker = Replay(args.size, args.batch, args.count, args.partitions)
    uvloop.run(serve(broker))  # it writes many pieces at once without joining them


if __name__ == "__main__":
    main()
