"""A blocking client that says what it is told to, legal or not, and shows what comes back."""

import itertools
import socket
from struct import Struct
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command, encode_command
from fastwire.pulsar.format.payload import Entry, encode_send

_SIZES = Struct(">II")
Command = pb.BaseCommand


class Peer:
    """One connection; ``ask`` and ``take`` skip nothing that the broker says."""

    def __init__(self, url: str, *, connect: bool = True, **parts: Any) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), timeout=60)
        self._ids = itertools.count(1)
        self.connected: pb.CommandConnected | None = None
        if connect:
            self.connected = self.connect(**parts).connected

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
        self.send_bytes(encode_command(Command(type=kind, **parts)))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> tuple[pb.BaseCommand, bytes]:
        """The next frame: its command, and what follows it."""
        total, size = _SIZES.unpack(self.exactly(8))
        rest = self.exactly(total - 4)
        return decode_command(rest[:size]), rest[size:]

    def take(self, *kinds: "pb.BaseCommand.Type") -> pb.BaseCommand:
        """The next command, which must be one of ``kinds``."""
        command, _ = self.receive()
        assert command.type in kinds, command
        return command

    def exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError("the broker closed the connection")
            data += part
        return data

    def is_silent(self) -> bool:
        """Return whether the broker has nothing more to send: its next frames are the answers to two PINGs."""
        return not self._before_pongs()

    def _before_pongs(self) -> list[pb.BaseCommand]:
        """Return the commands before the answers to two PINGs; a dispatch that the first one overtakes is between."""
        found = []
        for _ in range(2):
            self.send(Command.PING, ping=pb.CommandPing())
            while (command := self.receive()[0]).type != Command.PONG:
                found.append(command)
        return found

    def is_ignored(self, seconds: float = 0.05) -> bool:
        """Return whether no byte arrives for a while, not even an answer to a PING."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b"never"
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(10)

    def closed_with(self) -> str:
        """Return the broker's reason for closing the connection; earlier commands are passed over."""
        text = ""
        while True:
            try:
                command, _ = self.receive()
            except (EOFError, ConnectionError):
                return text
            if command.type == Command.ERROR:
                text = command.error.message

    def next_id(self) -> int:
        return next(self._ids)

    # Often said.

    def connect(self, **parts: Any) -> pb.BaseCommand:
        self.send(
            Command.CONNECT, connect=pb.CommandConnect(**{"client_version": "peer", "protocol_version": 21, **parts})
        )
        return self.receive()[0]

    def subscribe(
        self, topic: str, subscription: str = "s", consumer_id: int = 1, kind: str = "Exclusive", **parts: Any
    ) -> int:
        """Send SUBSCRIBE, from the beginning unless told otherwise; returns the request id."""
        request_id = self.next_id()
        fields: dict[str, Any] = {"initialPosition": pb.CommandSubscribe.Earliest, "consumer_name": "c"} | parts
        request = pb.CommandSubscribe(
            topic=full(topic),
            subscription=subscription,
            subType=kind,
            consumer_id=consumer_id,
            request_id=request_id,
            **fields,
        )
        self.send(Command.SUBSCRIBE, subscribe=request)
        return request_id

    def subscribed(self, *args: Any, **parts: Any) -> None:
        """Subscribe and wait for the answer."""
        request_id = self.subscribe(*args, **parts)
        assert self.take(Command.SUCCESS).success.request_id == request_id

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        self.send(Command.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))

    def ack(
        self,
        *ids: tuple[int, int] | pb.MessageIdData,
        consumer_id: int = 1,
        cumulative: bool = False,
        request_id: int | None = None,
    ) -> None:
        ack = pb.CommandAck(
            consumer_id=consumer_id,
            ack_type=pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual,
            message_id=[one if isinstance(one, pb.MessageIdData) else message_id(*one) for one in ids],
        )
        if request_id is not None:
            ack.request_id = request_id
        self.send(Command.ACK, ack=ack)

    def acked(self, *ids: tuple[int, int] | pb.MessageIdData, **parts: Any) -> None:
        """Ack and wait for the receipt."""
        request_id = self.next_id()
        self.ack(*ids, request_id=request_id, **parts)
        answer = self.take(Command.ACK_RESPONSE).ackResponse
        assert answer.request_id == request_id and not answer.HasField("error")

    def message(self) -> pb.CommandMessage:
        """The next command, which must be a MESSAGE."""
        return self.take(Command.MESSAGE).message

    def messages(self, count: int) -> list[tuple[int, int]]:
        """The positions of the next entries."""
        found = [self.message().message_id for _ in range(count)]
        return [(one.ledgerId, one.entryId) for one in found]

    def drain(self) -> list[tuple[int, int]]:
        """The positions of all entries that the broker has to send."""
        found = []
        while came := self._before_pongs():
            assert all(command.type == Command.MESSAGE for command in came), came
            found += [command.message.message_id for command in came]
        return [(one.ledgerId, one.entryId) for one in found]

    def produce(self, topic: str, entries: list[Entry], producer_id: int = 1) -> list[tuple[int, int]]:
        """Open a producer, send entries, wait for the receipts; returns their positions."""
        request = pb.CommandProducer(topic=full(topic), producer_id=producer_id, request_id=self.next_id())
        self.send(Command.PRODUCER, producer=request)
        self.take(Command.PRODUCER_SUCCESS)
        found = []
        for entry in entries:
            self.send_bytes(encode_send(producer_id, entry))
            receipt = self.take(Command.SEND_RECEIPT).send_receipt
            assert (receipt.producer_id, receipt.sequence_id) == (producer_id, entry.sequence_id)
            found.append((receipt.message_id.ledgerId, receipt.message_id.entryId))
        return found


def full(topic: str) -> str:
    return topic if "://" in topic else f"persistent://public/default/{topic}"


def message_id(ledger: int, entry: int, **parts: Any) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=ledger, entryId=entry % (1 << 64), **parts)
