"""Frames and the envelope of requests and responses, for client and server (spec: tubemq 2, 3, 4).

The scanner reads the frames of a connection. What is read here is the content of one frame, without the borders of its
blocks.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from struct import pack
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Refused
from fastwire.wire.messages import garbled_field
from fastwire.wire.writer import encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = 0xFF7FF4FE
BLOCK_BYTES = 8192
MOST_BLOCKS = 3584
MOST_CONTENT = MOST_BLOCKS * BLOCK_BYTES

_PROTOCOL = 3  # the naming of org.apache.inlong; it affects the names of exceptions only

M = TypeVar("M", bound=Message)


class Service(IntEnum):
    """The service of a server that handles a request."""

    MASTER = 1
    READ = 2
    WRITE = 3


class Method(IntEnum):
    """The methods that clients use."""

    PRODUCER_REGISTER = 1
    PRODUCER_HEARTBEAT = 2
    PRODUCER_CLOSE = 3
    CONSUMER_REGISTER = 4
    CONSUMER_HEARTBEAT = 5
    CONSUMER_CLOSE = 6
    SEND = 13
    BROKER_REGISTER = 15
    BROKER_HEARTBEAT = 16
    GET = 17
    COMMIT = 18
    CLIENT_REGISTER = 20
    CLIENT_HEARTBEAT = 21
    CLIENT_METADATA = 22

    @property
    def service(self) -> Service:
        """The service that has the method."""
        if self is Method.SEND:
            return Service.WRITE
        return Service.READ if Method.BROKER_REGISTER <= self <= Method.COMMIT else Service.MASTER


_BODIES: dict[Method, tuple[type[Message], type[Message]]] = {
    Method.PRODUCER_REGISTER: (pb.RegisterRequestP2M, pb.RegisterResponseM2P),
    Method.PRODUCER_HEARTBEAT: (pb.HeartRequestP2M, pb.HeartResponseM2P),
    Method.PRODUCER_CLOSE: (pb.CloseRequestP2M, pb.CloseResponseM2P),
    Method.CONSUMER_REGISTER: (pb.RegisterRequestC2M, pb.RegisterResponseM2C),
    Method.CONSUMER_HEARTBEAT: (pb.HeartRequestC2M, pb.HeartResponseM2C),
    Method.CONSUMER_CLOSE: (pb.CloseRequestC2M, pb.CloseResponseM2C),
    Method.SEND: (pb.SendMessageRequestP2B, pb.SendMessageResponseB2P),
    Method.BROKER_REGISTER: (pb.RegisterRequestC2B, pb.RegisterResponseB2C),
    Method.BROKER_HEARTBEAT: (pb.HeartBeatRequestC2B, pb.HeartBeatResponseB2C),
    Method.GET: (pb.GetMessageRequestC2B, pb.GetMessageResponseB2C),
    Method.COMMIT: (pb.CommitOffsetRequestC2B, pb.CommitOffsetResponseB2C),
    Method.CLIENT_REGISTER: (pb.RegisterRequestC2MV2, pb.RegisterResponseM2CV2),
    Method.CLIENT_HEARTBEAT: (pb.HeartRequestC2MV2, pb.HeartResponseM2CV2),
    Method.CLIENT_METADATA: (pb.GetPartMetaRequestC2M, pb.GetPartMetaResponseM2C),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a server reads it. A server answers none whose ``timeout_ms`` is not above 0."""

    service: int
    protocol: int
    method: Method
    timeout_ms: int
    body: Message


Answer = Message | Refused
"""The body of a response; its own ``errCode`` still decides."""


def encode_frame(serial: int, content: bytes, *, block_bytes: int = BLOCK_BYTES) -> bytes:
    """Return the frame of ``content``. Raises ValueError for no content, or more than a server accepts."""
    count = -(-len(content) // block_bytes)
    if not 1 <= count <= MOST_BLOCKS:
        raise ValueError(f"{len(content)} bytes do not fit 1 to {MOST_BLOCKS} blocks of {block_bytes}")
    parts = [pack(">III", TOKEN, serial & 0xFFFFFFFF, count)]
    for at in range(0, len(content), block_bytes):
        block = content[at : at + block_bytes]
        parts += (pack(">I", len(block)), block)
    return b"".join(parts)


def _delimited(*messages: Message) -> bytes:
    parts: list[bytes] = []
    for message in messages:
        data = message.SerializeToString(deterministic=True)
        parts += (encode_varint(len(data)), data)
    return b"".join(parts)


@cache
def _request_head(method: Method) -> bytes:
    return _delimited(pb.RpcConnHeader(flag=0), pb.RequestHeader(serviceType=method.service, protocolVer=_PROTOCOL))


def encode_request(serial: int, method: Method, body: Message, timeout_ms: int) -> bytes:
    """Return the frame of a request. Raises ValueError for a timeout that no server would answer within."""
    if timeout_ms <= 0:
        raise ValueError("a request without a timeout is never answered")
    data = body.SerializeToString(deterministic=True)
    ask = pb.RequestBody(method=method, timeout=timeout_ms, request=data)
    return encode_frame(serial, _request_head(method) + _delimited(ask))


def encode_response(serial: int, method: Method, body: Message) -> bytes:
    """Return the frame of a response of status 0."""
    data = body.SerializeToString(deterministic=True)
    return encode_frame(
        serial,
        _delimited(
            pb.RpcConnHeader(flag=1),
            pb.ResponseHeader(status=pb.ResponseHeader.SUCCESS, protocolVer=_PROTOCOL),
            pb.RspResponseBody(method=method, data=data),
        ),
    )


def encode_refusal(serial: int, refused: Refused) -> bytes:
    """Return the frame of a response of status 1 or 2."""
    if refused.fatal:
        head = pb.ResponseHeader(status=pb.ResponseHeader.FATAL)
    else:
        head = pb.ResponseHeader(status=pb.ResponseHeader.ERROR, protocolVer=_PROTOCOL)
    body = pb.RspExceptionBody(exceptionName=refused.exception, stackTrace=refused.text)
    return encode_frame(serial, _delimited(pb.RpcConnHeader(flag=1), head, body))


def read_message(kind: type[M], data: bytes, what: str, offset: int = 0) -> M:
    """Return the message that ``data`` holds.

    Raises ProtocolError if it is not a protobuf message, lacks a required field or contains text that is not UTF-8.
    """
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as exc:
        raise ProtocolError(what, offset, detail=str(exc)) from None
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise ProtocolError(what, offset, detail=f"required fields are missing: {missing}")
    if garbled := garbled_field(message):
        raise ProtocolError(what, offset, detail=f"{garbled} is not UTF-8")
    return message


def _split(content: bytes) -> "Iterator[tuple[int, bytes]]":
    """Yield the delimited messages of a content, each with its offset. Later bytes are ignored, as servers do."""
    at = 0
    while True:
        size = shift = 0
        start = at
        while True:
            if at >= len(content):
                raise ProtocolError("message length", start, at - start + 1, at - start)
            byte = content[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise ProtocolError("message length", start, detail="has more than 5 bytes")
        if size > len(content) - at:
            raise ProtocolError("message", at, size, len(content) - at)
        yield at, content[at : at + size]
        at += size


def _method(number: int, offset: int) -> Method:
    try:
        return Method(number)
    except ValueError:
        raise ProtocolError("method", offset, detail=f"{number} is not one of a client") from None


def decode_request(content: bytes) -> Request:
    """Read the content of a request. Raises ProtocolError."""
    parts = _split(content)
    at, data = next(parts)
    read_message(pb.RpcConnHeader, data, "connection header", at)
    at, data = next(parts)
    head = read_message(pb.RequestHeader, data, "request header", at)
    at, data = next(parts)
    body = read_message(pb.RequestBody, data, "request body", at)
    method = _method(body.method, at)
    message = read_message(_BODIES[method][0], body.request, f"request of {method.name}", at)
    return Request(head.serviceType, head.protocolVer, method, body.timeout, message)


def decode_response(content: bytes, method: Method) -> Answer:
    """Read the content of a response to a request of ``method``. Raises ProtocolError."""
    parts = _split(content)
    at, data = next(parts)
    read_message(pb.RpcConnHeader, data, "connection header", at)
    at, data = next(parts)
    head = read_message(pb.ResponseHeader, data, "response header", at)
    at, data = next(parts)
    if head.status != pb.ResponseHeader.SUCCESS:
        failed = read_message(pb.RspExceptionBody, data, "exception", at)
        return Refused(failed.exceptionName, failed.stackTrace, head.status == pb.ResponseHeader.FATAL)
    body = read_message(pb.RspResponseBody, data, "response body", at)
    if body.method != method:
        raise ProtocolError("method", at, detail=f"{body.method} answers a request of {method.value}")
    return read_message(_BODIES[method][1], body.data, f"response of {method.name}", at)
