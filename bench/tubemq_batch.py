"""The responses to GETs of a TubeMQ Broker, as the benches send and decode them."""

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.protocol.request import payload_checksum
from fastwire_daemon.devbroker.tubemq.topics import ENTRY, HEAD

from .child import Case
from .message import Messages

__all__ = ["ENTRY", "cases", "response"]

TRANSFER_BYTES = 524_288  # what a Broker reads from its file for one response, by default
FIRST_ID = 2_159_096_963_520_266_240


def cases() -> list[Case]:
    """Full responses: a Broker stops behind the message that reaches its limit. There is no compression."""
    return [Case(size, -(-TRANSFER_BYTES // (size + HEAD)), "none") for size in (100, 1024)]


def response(messages: Messages, count: int, offset: int, most: int, lag: int = 0) -> pb.GetMessageResponseB2C:
    """Return a response of ``count`` messages without attributes from ``offset`` on, of ``most`` and ``lag`` bytes."""
    first = offset // ENTRY
    reply = pb.GetMessageResponseB2C(
        success=True,
        errCode=Code.SUCCESS,
        errMsg="OK!",
        currOffset=offset,
        minLimitTime=0,
        escFlowCtrl=False,
        currDataDlt=lag,
        requireSlow=False,
        maxOffset=most,
    )
    for number in range(first, first + count):
        value = messages.value(number)
        reply.messages.add(messageId=FIRST_ID + number, checkSum=payload_checksum(value), payLoadData=value, flag=0)
    return reply
