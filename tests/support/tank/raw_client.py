"""A connection to the embedded TANK broker, spoken by hand: requests and answers as objects."""

import itertools
import socket
from contextlib import closing
from typing import Any, BinaryIO, cast

from fastwire.tank.format.message import FRAME_HEAD, PING, MessageType, encode_frame
from fastwire.tank.protocol.connection import Request
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition
from fastwire.tank.protocol.produce import ProduceAnswer, ProduceRequest
from fastwire_daemon.devbroker.tank import TankDevBroker
from tests.support.tank.golden import Reading

PATIENCE_S = 60.0


def read_frame(stream: BinaryIO) -> bytes:
    """Return the next frame; b"" if the broker has closed the connection."""
    head = stream.read(FRAME_HEAD)
    return head + stream.read(int.from_bytes(head[1:], "little"))


class Peer:
    """One connection to a node, whose ping has come."""

    def __init__(self, broker: TankDevBroker, node: int = 0) -> None:
        self._socket = socket.create_connection((broker.host, broker.ports[node]), PATIENCE_S)
        self._stream = cast(BinaryIO, self._socket.makefile("rb"))
        self._numbers = itertools.count(1)
        assert self.frame() == PING

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._socket), closing(self._stream):
            pass

    def frame(self) -> bytes:
        """Return the next frame; b"" if the broker has closed the connection."""
        return read_frame(self._stream)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, request: Request | ConsumeRequest) -> int:
        number = next(self._numbers)
        self._socket.sendall(encode_frame(request.kind, request.encode(number)))
        return number

    def ask(self, request: Request) -> Any:
        """Return the answer to a request without messages."""
        number = self.send(request)
        payload = self.frame()[FRAME_HEAD:]
        if isinstance(request, ProduceRequest):
            answered, answer = ProduceAnswer.decode(payload, request)
        else:
            answered, answer = request.answer.decode(payload)
        assert answered == number
        return answer

    def consume(self, topic: str, sequence: int, partition: int = 0, **more: Any) -> Reading:
        """Return what comes of the answer to a request for one partition."""
        self.ask_messages(topic, sequence, partition, **more)
        return self.messages(topic, sequence, partition)

    def ask_messages(
        self, topic: str, sequence: int, partition: int = 0, *, fetch_bytes: int = 1 << 20, **more: Any
    ) -> None:
        self.send(ConsumeRequest(((topic, (FetchPartition(partition, sequence, fetch_bytes),)),), **more))

    def messages(self, topic: str, sequence: int, partition: int = 0) -> Reading:
        """Return what comes of the next answer, which is that to a request for one partition."""
        reading = Reading({(topic, partition): sequence})
        answer = self.frame()
        assert answer[0] == MessageType.CONSUME
        reading.read(answer)
        return reading
