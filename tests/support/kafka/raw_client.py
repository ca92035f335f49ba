"""A Kafka client that says whatever a test wants said, and blocks until it is answered."""

import itertools
import socket
from typing import Any

from fastwire.kafka.format.message import Body, decode_response, encode_request
from fastwire_daemon.devbroker.kafka import KafkaDevBroker

PATIENCE_S = 60.0


class Peer:
    """One connection to a node; closed by the broker it raises ConnectionError."""

    def __init__(self, broker: KafkaDevBroker, node: int = 0) -> None:
        self._socket = socket.create_connection((broker.host, broker.ports[node]), PATIENCE_S)
        self._numbers = itertools.count(1)

    def send(self, key: int, version: int, body: Body) -> int:
        number = next(self._numbers)
        self._socket.sendall(encode_request(key, version, number, "peer", body))
        return number

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self) -> bytes:
        """The next frame, from the correlation id on."""
        return self._take(int.from_bytes(self._take(4)))

    def ask(self, key: int, version: int, body: Body | None = None, **more: Any) -> Body:
        number = self.send(key, version, (body or {}) | more)
        frame = self.answer()
        assert int.from_bytes(frame[:4]) == number
        return decode_response(key, version, frame)

    def closed(self) -> bool:
        """Return whether the broker closes the connection without another byte."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed by the broker")
            data += piece
        return data
