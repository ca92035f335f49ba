"""A Pulsar broker for benches that does as little as possible: it sends the same frames as fast as permits allow.

    python bench/replay_server.py --messages 1000000 --size 100 --batch 1000 --codec lz4 --partitions 4

Prints one JSON line when it listens: url, port, topic, and what it will send to each new subscription. Any topic name
and any subscription will do; every new subscription gets everything from the beginning, acknowledgements only move a
cursor that is told. SIGTERM or Ctrl-C ends it; then it prints a second line with its CPU time. Frames of entries up to
8 KiB are held in memory whole, so small batches of large messages need as much memory as they send.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Any, cast

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command, encode_command
from fastwire.pulsar.format.payload import (
    Compression,
    Entry,
    Record,
    encode_block_entry,
    encode_single_entry,
    encode_values,
)
from fastwire.pulsar.names.topic import partition_index
from fastwire_daemon.devbroker.pulsar.frame import MessageHeader
from fastwire_daemon.systems.load import Load

LEDGER = 7
# Entry ids of three bytes each make frames of one size, so that a cut at any frame is arithmetic.
FIRST_ENTRY = 1 << 14
MOST_ENTRIES = (1 << 21) - FIRST_ENTRY
JOINED_BELOW = 8 << 10  # bytes of an entry: smaller ones are joined beforehand, larger ones are sent by reference
SLICE_BYTES = 1 << 20  # handed to the socket at a time, before the next consumer has its turn
SEND_BUFFER = 4 << 20
MAX_PIECES = 512  # of one sendmsg; the kernel takes 1024

_SIZES = Struct(">II")
Command = pb.BaseCommand


@dataclass(frozen=True)
class Plan:
    """The entries that every subscription is sent."""

    entry: Entry
    entries: int  # in all partitions together
    partitions: int

    def of_partition(self, partition: int) -> int:
        """Count the entries of one partition."""
        spread = max(self.partitions, 1)
        return self.entries // spread + (max(partition, 0) < self.entries % spread)


def make_plan(messages: int, size: int, batch: int, codec: Compression, partitions: int) -> Plan:
    """Build the one entry that is sent over and over."""
    load = Load(record_bytes=size, keys=False)
    if batch:
        block = encode_values([load.record(number) for number in range(batch)])
        entry = encode_block_entry(
            block, batch, producer_name="replay", sequence_id=0, publish_time=1_700_000_000_000, compression=codec
        )
    else:
        record = Record(value=load.record(0))
        entry = encode_single_entry(
            record, producer_name="replay", sequence_id=0, publish_time=1_700_000_000_000, compression=codec
        )
    plan = Plan(entry, -(-messages // entry.messages), partitions)
    if plan.of_partition(0) > MOST_ENTRIES:
        raise SystemExit(f"more than {MOST_ENTRIES} entries in a partition")
    return plan


def entry_numbers(count: int) -> list[bytes]:
    """Return the first ``count`` entry ids as they stand in a frame."""
    return [
        bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
        for number in range(FIRST_ENTRY, FIRST_ENTRY + count)
    ]


class Frames:
    """All frames of one consumer of one partition."""

    def __init__(self, plan: Plan, consumer_id: int, partition: int) -> None:
        body = plan.entry.body
        self.count = plan.of_partition(partition)
        self.permits = plan.entry.messages
        header = MessageHeader(consumer_id, partition).encode((LEDGER, FIRST_ENTRY), len(body))
        numbers = entry_numbers(self.count)
        at = header.rindex(b"\x10" + entry_numbers(1)[0]) + 1
        before, after = header[:at], header[at + 3 :] + body
        self.size = len(header) + len(body)
        self._joined: memoryview | None = None
        if self.size < JOINED_BELOW and numbers:
            self._joined = memoryview(before + (after + before).join(numbers) + after)
        else:
            self._heads = [before + number + header[at + 3 :] for number in numbers]
            self._body = memoryview(body)

    def cut(self, first: int, count: int) -> list[memoryview]:
        """Return ``count`` frames from ``first`` on, as pieces to be sent."""
        if self._joined is not None:
            return [self._joined[first * self.size : (first + count) * self.size]]
        pieces: list[memoryview] = []
        for head in self._heads[first : first + count]:
            pieces += (memoryview(head), self._body)
        return pieces


class Consumer:
    """The progress of one subscription."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.permits = 0
        self.next = 0
        self.confirmed = -1  # the last entry up to which everything was acknowledged

    def take(self) -> list[memoryview]:
        """Return the next frames, of about SLICE_BYTES at most; debits what they cost."""
        frames = self.frames
        whole = -(-self.permits // frames.permits)  # whole entries while there is a permit
        count = min(whole, frames.count - self.next, max(1, SLICE_BYTES // frames.size))
        if count <= 0:
            return []
        first, self.next = self.next, self.next + count
        self.permits -= count * frames.permits
        return frames.cut(first, count)


class Connection:
    """One client: commands in, frames out."""

    def __init__(self, server: "Server", sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.server = server
        self.sock = sock
        self.consumers: dict[int, Consumer] = {}
        self._in = bytearray()
        self._out: deque[memoryview] = deque()

    def readable(self) -> bool:
        """Handle what came; false if the client is gone."""
        try:
            data = self.sock.recv(256 << 10)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if not data:
            return False
        self._in += data
        at = 0
        while len(self._in) - at >= 8:
            total, size = _SIZES.unpack_from(self._in, at)
            if len(self._in) - at < 4 + total:
                break
            self.handle(decode_command(bytes(self._in[at + 8 : at + 8 + size])))
            at += 4 + total
        del self._in[:at]
        return True

    def writable(self) -> bool:
        """Send what there is; false if the client is gone."""
        while self.fill():
            pieces = [self._out[at] for at in range(min(len(self._out), MAX_PIECES))]
            try:
                sent = self.sock.sendmsg(pieces)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            self.server.sent += sent
            while sent:
                piece = self._out.popleft()
                if sent < len(piece):
                    self._out.appendleft(piece[sent:])
                    return True
                sent -= len(piece)
        return True

    def fill(self) -> bool:
        """Have something to send if any consumer may be sent something."""
        if not self._out:
            for consumer in self.consumers.values():
                if consumer.permits > 0:
                    self._out += consumer.take()
        return bool(self._out)

    def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
        """Say something, behind what is being sent."""
        self._out.append(memoryview(encode_command(Command(type=kind, **parts))))

    def handle(self, command: pb.BaseCommand) -> None:
        """Answer one command."""
        plan = self.server.plan
        kind = command.type
        if kind == Command.FLOW:
            if (consumer := self.consumers.get(command.flow.consumer_id)) is not None:
                consumer.permits += command.flow.messagePermits
        elif kind == Command.ACK:
            self.acknowledge(command.ack)
            if command.ack.HasField("request_id"):
                answer = pb.CommandAckResponse(consumer_id=command.ack.consumer_id, request_id=command.ack.request_id)
                self.send(Command.ACK_RESPONSE, ackResponse=answer)
        elif kind == Command.PING:
            self.send(Command.PONG, pong=pb.CommandPong())
        elif kind == Command.CONNECT:
            connected = pb.CommandConnected(
                server_version="replay", protocol_version=min(21, command.connect.protocol_version)
            )
            self.send(Command.CONNECTED, connected=connected)
        elif kind == Command.PARTITIONED_METADATA:
            topic = command.partitionMetadata
            answer_of = pb.CommandPartitionedTopicMetadataResponse
            found = answer_of(request_id=topic.request_id, response=answer_of.Success)
            found.partitions = plan.partitions if partition_index(topic.topic) < 0 else 0
            self.send(Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=found)
        elif kind == Command.LOOKUP:
            owner = pb.CommandLookupTopicResponse(
                request_id=command.lookupTopic.request_id,
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=self.server.url,
                authoritative=True,
            )
            self.send(Command.LOOKUP_RESPONSE, lookupTopicResponse=owner)
        elif kind == Command.SUBSCRIBE:
            self.subscribe(command.subscribe)
        elif kind == Command.GET_LAST_MESSAGE_ID:
            self.last_id(command.getLastMessageId)
        elif kind == Command.CONSUMER_STATS:
            stats = pb.CommandConsumerStatsResponse(request_id=command.consumerStats.request_id)
            self.send(Command.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats)
        elif kind == Command.CLOSE_CONSUMER:
            self.consumers.pop(command.close_consumer.consumer_id, None)
            self.succeed(command.close_consumer.request_id)
        elif kind == Command.UNSUBSCRIBE:
            self.consumers.pop(command.unsubscribe.consumer_id, None)
            self.succeed(command.unsubscribe.request_id)
        elif kind == Command.SEEK:
            self.consumers.pop(command.seek.consumer_id, None)
            closed = pb.CommandCloseConsumer(consumer_id=command.seek.consumer_id, request_id=(1 << 64) - 1)
            self.send(Command.CLOSE_CONSUMER, close_consumer=closed)
            self.succeed(command.seek.request_id)
        elif kind == Command.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            self.rewind(command.redeliverUnacknowledgedMessages.consumer_id)

    def acknowledge(self, ack: pb.CommandAck) -> None:
        """Move the cursor: to a cumulative position, or, which is good enough here, to the highest of single ones."""
        if (consumer := self.consumers.get(ack.consumer_id)) is not None and ack.message_id:
            consumer.confirmed = max(consumer.confirmed, *(one.entryId for one in ack.message_id))

    def rewind(self, consumer_id: int) -> None:
        """Send a consumer everything again."""
        if (consumer := self.consumers.get(consumer_id)) is not None:
            consumer.next = 0

    def subscribe(self, request: pb.CommandSubscribe) -> None:
        """Begin again from the first entry."""
        partition = partition_index(request.topic)
        self.consumers[request.consumer_id] = Consumer(self.server.frames(request.consumer_id, partition))
        self.succeed(request.request_id)
        if request.subType == pb.CommandSubscribe.Failover:
            change = pb.CommandActiveConsumerChange(consumer_id=request.consumer_id, is_active=True)
            self.send(Command.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)

    def last_id(self, request: pb.CommandGetLastMessageId) -> None:
        """Tell where the end and the cursor are."""
        entry = self.server.plan.entry
        consumer = self.consumers[request.consumer_id]
        count = consumer.frames.count
        last = pb.MessageIdData(ledgerId=LEDGER, entryId=(FIRST_ENTRY + count - 1 if count else -1) % (1 << 64))
        if entry.batched and count:
            last.batch_index = entry.messages - 1
        answer = pb.CommandGetLastMessageIdResponse(
            request_id=request.request_id,
            last_message_id=last,
            consumer_mark_delete_position=pb.MessageIdData(
                ledgerId=LEDGER, entryId=max(consumer.confirmed, FIRST_ENTRY - 1)
            ),
        )
        self.send(Command.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)

    def succeed(self, request_id: int) -> None:
        """Answer a request."""
        self.send(Command.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def send_unpaced(listener: int) -> None:
    """Let the connections of a listener send by CUBIC, the default of Linux, as far as the machine has it.

    BBR, the default of some machines, paces by timers. What they send counts as CPU of the process that they interrupt,
    which is mostly the one that is measured, and after each pause of a reader it takes a while to be fast again.
    """
    with socket.socket(fileno=os.dup(listener)) as sock, suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


class Server:
    """All connections, one thread."""

    def __init__(self, plan: Plan, host: str, port: int) -> None:
        self.plan = plan
        self.listener = socket.create_server((host, port))
        send_unpaced(self.listener.fileno())
        self.url = f"pulsar://{host}:{self.listener.getsockname()[1]}"
        self.sent = 0
        self._frames: dict[tuple[int, int], Frames] = {}

    def frames(self, consumer_id: int, partition: int) -> Frames:
        """Return the frames of a consumer; built once, and then there for every run."""
        key = consumer_id, partition
        if key not in self._frames:
            for other in [other for other in self._frames if other[1] == partition]:
                del self._frames[other]  # memory for one set of everything
            self._frames[key] = Frames(self.plan, consumer_id, partition)
        return self._frames[key]

    def serve(self) -> None:
        """Serve until the process is ended."""
        selector = selectors.DefaultSelector()
        selector.register(self.listener, selectors.EVENT_READ)
        while True:
            for key, events in selector.select():
                if key.fileobj is self.listener:
                    sock, _ = self.listener.accept()
                    selector.register(sock, selectors.EVENT_READ, Connection(self, sock))
                    continue
                connection = cast(Connection, key.data)
                alive = not events & selectors.EVENT_READ or connection.readable()
                alive = alive and connection.writable()
                if not alive:
                    selector.unregister(connection.sock)
                    connection.sock.close()
                    continue
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.fill() else 0)
                if wanted != key.events:
                    selector.modify(connection.sock, wanted, connection)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="for each subscription, in all partitions")
    parser.add_argument("--size", type=int, default=100, help="bytes of one message")
    parser.add_argument("--batch", type=int, default=1000, help="messages an entry; 0: one, without a batch")
    parser.add_argument("--codec", default="none", choices=[codec.name.lower() for codec in Compression])
    parser.add_argument("--partitions", type=int, default=4, help="0: the topic has none")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    plan = make_plan(args.messages, args.size, args.batch, Compression[args.codec.upper()], args.partitions)
    server = Server(plan, args.host, args.port)
    told = {
        "url": server.url,
        "port": server.listener.getsockname()[1],
        "topic": "persistent://public/default/replay",
        "messages": plan.entries * plan.entry.messages,
        "entries": plan.entries,
        "entry_bytes": len(plan.entry.body),
    }
    print(json.dumps(told), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve()
    except (KeyboardInterrupt, SystemExit):
        times = os.times()
        print(json.dumps({"cpu_s": round(times.user + times.system, 3), "sent_bytes": server.sent}), flush=True)


if __name__ == "__main__":
    main()
