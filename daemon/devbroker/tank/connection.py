"""One connection to the embedded TANK broker: answers go out when they are ready, in any order (spec: tank 3, 4)."""

from collections.abc import Callable, Mapping
from struct import unpack_from
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.tank.format.message import FRAME_HEAD, MOST_REQUEST, PING, MessageType, encode_frame

from ..delayed import Timer
from ..server import Connection
from .cluster import Cluster

Handler = Callable[["TankConnection", bytes], None]
"""Answers a request, given its payload, now or later."""


class TankConnection(Connection):
    """A connection to one node, to which a ping is sent first."""

    def __init__(self, broker: Cluster, node: int, handlers: Mapping[int, Handler]) -> None:
        super().__init__(broker)
        self.broker = broker
        self.node = node
        self._handlers = handlers
        self._never_used_timer = Timer()

    def connection_made(self, transport: Any) -> None:
        """See ``asyncio.BaseProtocol``."""
        super().connection_made(transport)
        self.queue(PING)
        never_used, options = self.broker.never_used, self.broker.options
        never_used[self] = None
        self._never_used_timer.start(options.never_used_s, self.close)
        if len(never_used) > options.never_used:
            oldest = next(iter(never_used))
            del never_used[oldest]
            oldest.close()

    def receive(self, data: memoryview) -> int:
        """See ``Connection.receive``."""
        if data:
            self._used()
        at = 0
        while len(data) - at >= FRAME_HEAD and not self.closing:
            kind, size = unpack_from("<BI", data, at)
            handler = self._handlers.get(kind)
            if size > MOST_REQUEST or (handler is None and kind != MessageType.PING):
                raise ProtocolError("request", 0, detail=f"of type {kind:#x} with {size} bytes")
            if len(data) - at - FRAME_HEAD < size:
                break
            payload = bytes(data[at + FRAME_HEAD : at + FRAME_HEAD + size])
            at += FRAME_HEAD + size
            if handler is not None:  # a ping is not answered
                self.broker.requests[MessageType(kind).name] += 1
                handler(self, payload)
        return at

    def answer(self, kind: MessageType, payload: bytes) -> None:
        """Send an answer."""
        if not self.closing:
            frame = encode_frame(kind, payload)
            self.queue(frame if self.broker.tamper is None else self.broker.tamper(frame))

    def lost(self) -> None:
        """See ``Connection.lost``."""
        self._used()
        self.broker.held.drop(self)

    def _used(self) -> None:
        """End the watch for connections that are never used."""
        self._never_used_timer.cancel()
        self.broker.never_used.pop(self, None)
