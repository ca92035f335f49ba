"""A connection to a Pulsar broker, for tests that play the broker and tell the time."""

from typing import Any

from fastwire.position import Log
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command, encode_command
from fastwire.pulsar.format.payload import Compression, Entry, Record, encode_batch_entry, encode_chunks
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.connection import Connection
from fastwire.pulsar.reading.assembly import Assembly
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.support.pulsar.frames import message_frame

C = pb.BaseCommand
TOPIC = "persistent://public/default/t"
CONSUMER = 3


class Wire:
    """A connection, its scanner and one attached consumer; ``say`` is the broker."""

    def __init__(self, **options: Any) -> None:
        self.slots = SlotTable([Log("pulsar", "c", TOPIC, "-1", "0")])
        self.slots.add(CONSUMER, 0, ordered=True)
        self.slots.attach(CONSUMER, 1)
        keeps_corrupt = options.pop("keeps_corrupt", True)
        pool = options.pop("pool", None) or Pool(1 << 28)
        self.scanner = Scanner(self.slots, pool, 1, on_corrupt="dead_letter" if keeps_corrupt else "stop")
        completion = Completion(Assembly(pool), keeps_corrupt=keeps_corrupt)
        self.connection = Connection(self.scanner, completion, client_version="fw-0.1", **options)
        self.now = 1000.0

    def feed(self, data: bytes, piece: int = 1 << 30) -> list[Any]:
        events: list[Any] = []
        for at in range(0, len(data), piece):
            part = data[at : at + piece]
            while part:
                view = self.connection.get_buffer(-1)
                size = min(len(view), len(part))
                view[:size] = part[:size]
                view.release()
                events += self.connection.receive(size, self.now)
                while self.connection.more:
                    events += self.connection.receive(0, self.now)
                part = part[size:]
        return events

    def say(self, kind: "pb.BaseCommand.Type", **parts: Any) -> list[Any]:
        return self.feed(encode_command(C(type=kind, **parts)))

    def heard(self) -> list[pb.BaseCommand]:
        """Return the commands sent since the last call."""
        data = b"".join(self.connection.take_outbound())
        commands = []
        while data:
            size = int.from_bytes(data[:4], "big")
            commands.append(decode_command(data[8 : 4 + size]))
            data = data[4 + size :]
        return commands

    def ready(self, version: int = 21, **parts: Any) -> list[Any]:
        self.connection.connect(self.now)
        answer = pb.CommandConnected(server_version="b", protocol_version=version, **parts)
        events = self.say(C.CONNECTED, connected=answer)
        self.heard()
        return events

    def entry(self, entry: Entry, number: int, consumer: int = CONSUMER, ledger: int = 7) -> bytes:
        return message_frame(entry.body, consumer=consumer, ledger=ledger, entry=number)


def batch(number: int, rows: int = 10, size: int = 10, compression: Compression = Compression.NONE) -> Entry:
    records = [Record(value=b"%d:%d" % (number, at) + b"." * size) for at in range(rows)]
    return encode_batch_entry(records, producer_name="p", sequence_id=number, publish_time=1, compression=compression)


def part_of_chunked() -> Entry:
    """The last part of a message of which nothing else comes."""
    whole = Record(value=b"x" * 100)
    return encode_chunks(whole, chunk_bytes=50, producer_name="p", sequence_id=1, publish_time=1)[1]
