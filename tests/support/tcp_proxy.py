"""A TCP proxy before a broker that cuts, stalls and counts.

Pulsar's lookup answers are rewritten to name the proxy, so clients come back through it; a broker of Kafka has to
advertise it. Bytes that go to the client are followed frame by frame, which lets a test cut a connection in the middle
of a message.
"""

import select
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command, encode_command

CHUNK = 64 * 1024
# A frame of one command and nothing else is at most this long when it may be an answer to a lookup.
LARGEST_ANSWER = 4096
TANK_HEAD = 5
TANK_CONSUME = 2


class Proxy:
    """Listens on ``listen`` (0: any port) and forwards to ``port`` of 127.0.0.1; use as a context manager.

    Smaller frames than ``least`` carry no payload, whatever they look like: those of Kafka and TANK all look alike.
    ``connections``, ``to_client`` and ``to_broker`` count what was accepted and forwarded; ``frames`` counts the
    frames that carried a payload to a client.
    """

    def __init__(self, port: int, *, listen: int = 0, scheme: str = "pulsar", least: int = 0) -> None:
        self.scheme = scheme
        self.least = least
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", listen))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._open: set[_Pair] = set()
        self._guard = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._ending = False
        self._cut_at: int | None = None
        self.refusing = False
        self.connections = 0
        self.to_client = 0
        self.to_broker = 0
        self.frames = 0
        self.cuts = 0

    @property
    def port(self) -> int:
        """The address at which the proxy listens."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The service URL that leads through the proxy."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        self._flowing.set()
        # A thread that waits in accept keeps the port: wake it first.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset every open connection, as a vanished peer would."""
        with self._guard:
            pairs = list(self._open)
        for pair in pairs:
            pair.reset()

    def half_open(self) -> None:
        """Reset the broker's side of every connection; the client's side stays open and hears nothing more."""
        with self._guard:
            pairs = list(self._open)
        for pair in pairs:
            pair.abandon()

    def cut_in_frame(self, after: int = 0) -> None:
        """Reset the connection in the middle of a payload frame to a client, after ``after`` more whole ones."""
        self._cut_at = self.frames + after + 1

    def stall(self) -> None:
        """Forward nothing, in both directions, until ``resume``; connections stay open."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward again."""
        self._flowing.set()

    def _accept(self) -> None:
        while not self._ending:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing or self._ending:
                client.close()
                continue
            self.connections += 1
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            pair = _Pair(self, client, broker)
            with self._guard:
                self._open.add(pair)
            pair.start()

    def _forget(self, pair: "_Pair") -> None:
        with self._guard:
            self._open.discard(pair)

    def _may_flow(self) -> None:
        self._flowing.wait()

    def _cuts_this_frame(self) -> bool:
        """Called once for every frame with a payload, before any byte of it is forwarded."""
        self.frames += 1
        if self._cut_at is None or self.frames < self._cut_at:
            return False
        self._cut_at = None
        self.cuts += 1
        return True


def _close(end: socket.socket) -> None:
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread that waits in recv keeps the socket alive after close: wake it first.
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


class _Pair:
    """One client's connection and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._abandoned = False
        for end in (client, broker):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        """Forward in both directions until either end closes."""
        threading.Thread(target=self._pump, args=(self._upward,), daemon=True).start()
        threading.Thread(target=self._pump, args=(self._downward,), daemon=True).start()

    def reset(self) -> None:
        """Close both ends at once; unread and unsent bytes are dropped."""
        _close(self._client)
        _close(self._broker)
        self._proxy._forget(self)

    def abandon(self) -> None:
        """Close the end towards the broker alone; ``reset`` or the client ends the rest."""
        self._abandoned = True
        _close(self._broker)

    def _pump(self, forward: Callable[[], None]) -> None:
        try:
            forward()
        except (OSError, ValueError):
            pass  # either end is gone, or the other thread has closed both (a closed socket has no descriptor)
        finally:
            if not self._abandoned:
                self.reset()

    def _upward(self) -> None:
        while data := self._client.recv(CHUNK):
            self._proxy._may_flow()
            self._broker.sendall(data)
            self._proxy.to_broker += len(data)

    def _downward(self) -> None:
        if self._proxy.scheme == "tank":
            while head := self._exactly(TANK_HEAD):
                size = int.from_bytes(head[1:], "little")
                if head[0] == TANK_CONSUME:
                    self._with_payload(head, size)
                else:
                    self._to_client(head + self._exactly(size))
            return
        while head := self._exactly(8):
            total, size = struct.unpack(">II", head)
            # What stands there in a frame of Kafka is the number of its request.
            if self._proxy.scheme == "pulsar" and size == total - 4 and total <= LARGEST_ANSWER:
                command = self._exactly(size)
                if not command:
                    return  # the broker's end is closed in the middle of a frame
                self._to_client(self._rewritten(head + command))
            else:
                self._with_payload(head, total - 4)

    def _with_payload(self, head: bytes, left: int) -> None:
        cut = left >= self._proxy.least and self._proxy._cuts_this_frame()
        if cut:
            left //= 2
        self._to_client(head)
        while left:
            data = self._broker.recv(min(left, CHUNK))
            if not data:
                return
            self._to_client(data)
            left -= len(data)
        if cut:
            # What was forwarded must arrive: a reset would make the kernel drop it before it is read.
            self._client.shutdown(socket.SHUT_WR)
            select.select([self._client], [], [], 1.0)
            raise OSError("cut on purpose")

    def _rewritten(self, frame: bytes) -> bytes:
        command = decode_command(frame[8:])
        if command.type != pb.BaseCommand.LOOKUP_RESPONSE:
            return frame
        answer = command.lookupTopicResponse
        if answer.brokerServiceUrl:
            answer.brokerServiceUrl = self._proxy.url
        return encode_command(command)

    def _to_client(self, data: bytes) -> None:
        self._proxy._may_flow()
        self._client.sendall(data)
        self._proxy.to_client += len(data)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self._broker.recv(size - len(parts))
            if not data:
                return b""
            parts += data
        return bytes(parts)
