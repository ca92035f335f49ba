"""One connection to the embedded Master or Broker: requests are answered in their order (spec: tubemq 2-6)."""

from collections.abc import Callable, Mapping
from struct import unpack_from
from typing import Any

from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq.format.error import Code, Refused
from fastwire.tubemq.format.frame import (
    MOST_BLOCKS,
    MOST_CONTENT,
    TOKEN,
    Method,
    Request,
    Service,
    decode_request,
    encode_refusal,
    encode_response,
)

from ..base import RefusedError
from ..server import Connection
from .cluster import Cluster

HEAD = 12
BLOCK_HEAD = 4
CORE = "org.apache.inlong.tubemq.corerpc.exception"

Handler = Callable[["TubeMQConnection", Message], Message]
"""Handles a request and returns its answer: a success, unless it has a code. RefusedError becomes one with its code."""


class TubeMQConnection(Connection):
    """A connection to a server that has ``services``."""

    def __init__(
        self,
        broker: Cluster,
        services: frozenset[Service],
        handlers: Mapping[Method, tuple[Handler, type[Message]]],
    ) -> None:
        super().__init__(broker)
        self.broker = broker
        self._services = services
        self._handlers = handlers

    def receive(self, data: memoryview) -> int:
        """See ``Connection.receive``."""
        at = 0
        while not self.closing and (found := _frame(data[at:])) is not None:
            serial, content, size = found
            at += size
            self._handle(serial, content)
        return at

    def _handle(self, serial: int, content: bytes) -> None:
        try:
            request = decode_request(content)
        except ProtocolError as exc:
            name = "com.google.protobuf.InvalidProtocolBufferException"
            self.queue(encode_refusal(serial, Refused(name, f"IPC server handle request error :{exc}", True)))
            return
        broker = self.broker
        broker.requests[request.method.name] += 1
        if request.timeout_ms <= 0:
            if broker.options.strict:
                raise ProtocolError("timeout", detail=f"{request.timeout_ms} ms of {request.method.name}")
            return  # a real server never answers it
        refused = self._refusal(request)
        if refused is not None:
            self.queue(encode_refusal(serial, refused))
            return
        handler, kind = self._handlers[request.method]
        failure = broker.failures[request.method].take()
        if failure is not None and failure.code is not None:
            reply = answer(kind, failure.code, "an injected error")
        else:
            try:
                reply = _completed(handler(self, request.body))
            except RefusedError as exc:
                reply = answer(kind, exc.code, str(exc))
        if failure is None or failure.code is not None:
            frame = encode_response(serial, request.method, reply)
            self.queue(frame if broker.tamper is None else broker.tamper(request, frame))

    def _refusal(self, request: Request) -> Refused | None:
        """Return the exception for a request that this server does not handle."""
        if request.service not in self._services:
            return Refused("java.lang.Exception", f"No service {request.service} found on the server", False)
        if self.broker.standby and request.service == Service.MASTER:
            return Refused(f"{CORE}.StandbyException", f"{self.broker.host} is not master now", False)
        # The Broker serves a send for both of its services, and all others for the one to read.
        if request.method.service != request.service and request.method is not Method.SEND:
            return Refused("java.lang.Exception", f"Unsupported method ID :{request.method.value}", True)
        return None


def _completed(made: Any) -> Message:
    """Return an answer as that of a success, unless it has a code."""
    if not made.HasField("errCode"):
        if "success" in made.DESCRIPTOR.fields_by_name:
            made.success = True
        made.errCode, made.errMsg = Code.SUCCESS, "OK!"
    assert isinstance(made, Message)
    return made


def answer(kind: type[Message], code: int, text: str) -> Message:
    """Return an answer with an error code; its other required fields are those of an error."""
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if field.name == "success":
            made.success = False  # type: ignore[attr-defined]
        elif field.name == "errCode":
            made.errCode = code  # type: ignore[attr-defined]
        elif field.name == "errMsg":
            made.errMsg = text  # type: ignore[attr-defined]
        elif field.name in ("brokerCheckSum", "currOffset", "currDataDlt", "minLimitTime"):
            setattr(made, field.name, -1)
        elif field.name == "escFlowCtrl":
            made.escFlowCtrl = False  # type: ignore[attr-defined]
    return made


def _frame(data: memoryview) -> tuple[int, bytes, int] | None:
    """Read one frame: its serial number, its content, and its size. None if it is not complete."""
    if len(data) < HEAD:
        return None
    token, serial, count = unpack_from(">III", data)
    if token != TOKEN or not 1 <= count <= MOST_BLOCKS:
        raise ProtocolError("frame", 0, detail=f"token {token:#010x}, {count} blocks")
    at, size, blocks = HEAD, 0, []
    for _ in range(count):
        if len(data) - at < BLOCK_HEAD:
            return None
        (block,) = unpack_from(">I", data, at)
        size += block
        if block < 1 or size > MOST_CONTENT:
            raise ProtocolError("block length", at, detail=str(block))
        at += BLOCK_HEAD
        if len(data) - at < block:
            return None
        blocks.append(data[at : at + block])
        at += block
    return serial, b"".join(blocks), at
