"""Answers of TubeMQ servers that cannot be right: in their bytes, or in what they say.

Each lie takes the frame of a right answer and returns the one that is sent instead.
"""

import random
from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import Method, Request, decode_response, encode_frame, encode_refusal, encode_response
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker

Lie = Callable[[bytes], bytes]

HEAD = 12
BLOCK_HEAD = 4


def _serial(frame: bytes) -> int:
    serial: int = unpack_from(">I", frame, 4)[0]
    return serial


def _content(frame: bytes) -> bytes:
    at, content = HEAD, b""
    while at < len(frame):
        (block,) = unpack_from(">I", frame, at)
        content += frame[at + BLOCK_HEAD : at + BLOCK_HEAD + block]
        at += BLOCK_HEAD + block
    return content


def _framed(frame: bytes, content: bytes) -> bytes:
    return encode_frame(_serial(frame), content)


def wrong_serial(frame: bytes) -> bytes:
    """The answer to a request that was not made: the right one never comes."""
    return frame[:4] + b"\xfe\xff\xff\xff" + frame[8:]


def nothing_at_all(_: bytes) -> bytes:
    return b""


def wrong_token(frame: bytes) -> bytes:
    return b"\0" + frame[1:]


def no_blocks(frame: bytes) -> bytes:
    return frame[:8] + pack(">I", 0) + frame[HEAD:]


def too_many_blocks(frame: bytes) -> bytes:
    return frame[:8] + b"\xff\xff\xff\xff" + frame[HEAD:]


def huge_block(frame: bytes) -> bytes:
    """4 GiB are announced, and the bytes of the right answer follow."""
    return frame[:HEAD] + b"\xff\xff\xff\xff" + frame[HEAD + BLOCK_HEAD :]


def empty_block(frame: bytes) -> bytes:
    return frame[:HEAD] + pack(">I", 0) + frame[HEAD + BLOCK_HEAD :]


def ends_early(frame: bytes) -> bytes:
    return _framed(frame, _content(frame)[:-1])


def only_the_headers(frame: bytes) -> bytes:
    return _framed(frame, _content(frame)[:8])


def huge_lengths(frame: bytes) -> bytes:
    content = _content(frame)
    return _framed(frame, content[:8] + b"\xff" * (len(content) - 8))


def another_method(frame: bytes) -> bytes:
    """The answer to a request of a method that has none: its number is behind the headers and two bytes of the body."""
    content = bytearray(_content(frame))
    at = content.index(0x08, content[0] + content[content[0] + 1] + 3)
    content[at + 1] = 99
    return _framed(frame, bytes(content))


def anything(frame: bytes) -> bytes:
    """Bytes by chance behind the head, the same ones for the same length."""
    content = _content(frame)
    return _framed(frame, random.Random(len(content)).randbytes(len(content)))


def an_exception(frame: bytes) -> bytes:
    return encode_refusal(_serial(frame), Refused("java.lang.NullPointerException", "", False))


def a_fatal_exception(frame: bytes) -> bytes:
    return encode_refusal(_serial(frame), Refused("", "", True))


BYTES: tuple[Lie, ...] = (
    wrong_token,
    no_blocks,
    too_many_blocks,
    huge_block,
    empty_block,
    ends_early,
    only_the_headers,
    huge_lengths,
    another_method,
    anything,
)
"""Lies that end a connection."""

SILENT: tuple[Lie, ...] = (wrong_serial, nothing_at_all)
"""Lies after which the request times out."""

REFUSALS: tuple[Lie, ...] = (an_exception, a_fatal_exception)
"""Exceptions of the server."""


# Fields beside those that say what was read or assigned; by method, because a response has its own.
NONSENSE: dict[Method, dict[str, Any]] = {
    Method.GET: {
        "maxOffset": -1,
        "currDataDlt": 1 << 62,
        "minLimitTime": (1 << 31) - 1,
        "escFlowCtrl": True,
        "requireSlow": True,
    },
    Method.COMMIT: {"currOffset": -5, "maxOffset": -1},
    Method.BROKER_HEARTBEAT: {"hasPartFailure": True, "failureInfo": ["", "x:y", "411:9:h:1#t:0", "411:1:h#t"]},
    Method.CONSUMER_HEARTBEAT: {
        "defFlowCheckId": 7,
        "defFlowControlInfo": "[",
        "groupFlowCheckId": -9,
        "groupFlowControlInfo": '[{"type":0}]',
        "qryPriorityId": -1,
    },
    Method.CLIENT_HEARTBEAT: {"brokerConfigId": 7, "brokerConfigList": ["1:h"], "topicMetaInfoList": ["t#1:9:9"]},
    Method.CLIENT_METADATA: {"topicMetaInfoId": 7, "topicMetaInfoList": ["t#1:1000000:1000000:1"]},
}


def nonsense(method: Method) -> Lie:
    """A lie that leaves what was read or assigned, and puts nonsense beside it."""

    def lie(frame: bytes) -> bytes:
        body = decode_response(_content(frame), method)
        assert not isinstance(body, Refused)
        for name, value in NONSENSE[method].items():
            if isinstance(value, list):
                getattr(body, name).extend(value)
            else:
                setattr(body, name, value)
        return encode_response(_serial(frame), method, body)

    return lie


def elsewhere(method: Method, distance: int) -> Lie:
    """A lie about the offset of a GET or a COMMIT."""

    def lie(frame: bytes) -> bytes:
        body = decode_response(_content(frame), method)
        assert not isinstance(body, Refused)
        if body.currOffset >= 0:  # type: ignore[attr-defined]
            moved = min(max(body.currOffset + distance, 0), (1 << 63) - 1)  # type: ignore[attr-defined]
            body.currOffset = moved  # type: ignore[attr-defined]
        return encode_response(_serial(frame), method, body)

    return lie


class lying:  # noqa: N801 - reads as what it does to a broker
    """Let the next ``times`` answers to a method be a lie; ``left`` is how many are still to come."""

    def __init__(self, broker: TubeMQDevBroker, method: Method, lie: Lie, times: int = 1) -> None:
        self.left = times
        self._method = method
        self._lie = lie
        broker.tamper = self._tamper

    def _tamper(self, request: Request, frame: bytes) -> bytes:
        if request.method is not self._method or not self.left:
            return frame
        self.left -= 1
        return self._lie(frame)
