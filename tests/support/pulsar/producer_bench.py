"""A bench for Pulsar's producer: the machine, a connection that can be replaced, and what a broker sees."""

from collections.abc import Iterable
from struct import Struct
from typing import Any

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command
from fastwire.pulsar.format.payload import Record, split_payload
from fastwire.pulsar.producing.producer import Outcome, Producer
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.event import SendConfirmed, SendRefused
from fastwire.pulsar.protocol.request import BrokerError
from tests.support.pulsar.connection_scene import TOPIC, C, Wire
from tests.support.pulsar.frames import inflate

_SIZES = Struct(">II")
WALL = 1_700_000_000_000
ID = 5
ALONE: Any = {"batching": None}


class Sending:
    """A producer, and what a broker sees of it."""

    def __init__(self, *, opened: bool = True, last: int = -1, largest: int = 0, **settings: Any) -> None:
        self.producer = Producer(TOPIC, ID, ProducerSettings(**settings))
        self.wire = Wire()
        self.now = self.wire.now
        if opened:
            self.connect(largest=largest, last=last)

    def connect(self, *, largest: int = 0, last: int = -1, **success: Any) -> pb.CommandProducer:
        """A new connection, and the producer opened on it; returns what it asked for."""
        self.wire = Wire()
        self.wire.ready(**({"max_message_size": largest} if largest else {}))
        ask = self.ask()
        self.answer(ask, last=last, **success)
        return ask

    def ask(self) -> pb.CommandProducer:
        self.producer.open(self.wire.connection, self.now)
        (command,) = self.wire.heard()
        assert command.type == C.PRODUCER
        return command.producer

    def answer(self, ask: pb.CommandProducer, *, last: int = -1, **parts: Any) -> None:
        name = ask.producer_name or "given-1"
        success = pb.CommandProducerSuccess(
            request_id=ask.request_id, producer_name=name, last_sequence_id=last, **parts
        )
        (reply,) = self.wire.say(C.PRODUCER_SUCCESS, producer_success=success)
        assert reply.error is None
        self.producer.opened(reply.command.producer_success)

    def send(self, *values: bytes | None, **parts: Any) -> None:
        for value in values:
            record = Record(value=value, **parts)
            self.producer.send(record, (value, parts.get("key")), self.now, WALL)

    def heard(self) -> list[tuple[pb.CommandSend, pb.MessageMetadata, bytes]]:
        """The SEND frames since the last call."""
        data = b"".join(self.wire.connection.take_outbound())
        found = []
        while data:
            total, size = _SIZES.unpack_from(data)
            command = decode_command(data[8 : 8 + size])
            assert command.type == C.SEND
            assert command.send.producer_id == ID
            metadata, payload = split_payload(data[8 + size : 4 + total])
            assert metadata.sequence_id == command.send.sequence_id
            found.append((command.send, metadata, bytes(payload)))
            data = data[4 + total :]
        return found

    def confirm(self, *numbers: int, ledger: int = 7) -> list[Outcome]:
        for number in numbers:
            self.producer.confirmed(SendConfirmed(ID, number, Position(ledger, number)))
        return self.producer.take_outcomes()

    def refuse(self, number: int, code: Any) -> bool:
        return self.producer.refused(SendRefused(ID, number, BrokerError(code, "no")))

    def numbers(self) -> list[int]:
        return [send.sequence_id for send, _, _ in self.heard()]


def elements(metadata: pb.MessageMetadata, payload: bytes) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    block = inflate(metadata.compression, payload, metadata.uncompressed_size)
    found, at = [], 0
    for _ in range(metadata.num_messages_in_batch):
        size = int.from_bytes(block[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(block[at + 4 : at + 4 + size])
        at += 4 + size
        found.append((single, block[at : at + single.payload_size]))
        at += single.payload_size
    assert at == len(block)
    return found


def tickets(outcomes: Iterable[Outcome]) -> list[Any]:
    return [ticket for outcome in outcomes for ticket in outcome.tickets]
