"""Answers of TANK brokers that cannot be right: in their bytes, or in what they say.

Each lie takes the frame of a right answer and returns the one that is sent instead.
"""

import random
from collections.abc import Callable

from fastwire.tank.format.message import FRAME_HEAD, MessageType, encode_frame
from fastwire_daemon.devbroker.tank import TankDevBroker

Lie = Callable[[bytes], bytes]


def _at_id(frame: bytes) -> int:
    """The place of the request id: behind the length of the header in the answer to a consume request."""
    return FRAME_HEAD + (4 if frame[0] == MessageType.CONSUME else 0)


def wrong_id(frame: bytes) -> bytes:
    """The answer to a request that nobody has made: the right one never comes."""
    at = _at_id(frame)
    return frame[:at] + b"\xfe\xff\xff\xff" + frame[at + 4 :]


def nothing_at_all(_: bytes) -> bytes:
    return b""


def another_type(frame: bytes) -> bytes:
    kind = MessageType.DISCOVER_TOPICS if frame[0] != MessageType.DISCOVER_TOPICS else MessageType.DISCOVER_TOPOLOGY
    return encode_frame(kind, frame[_at_id(frame) :])


def unknown_type(frame: bytes) -> bytes:
    return b"\x77" + frame[1:]


def too_short_for_an_id(frame: bytes) -> bytes:
    return encode_frame(frame[0], frame[FRAME_HEAD : FRAME_HEAD + 3])


def only_the_id(frame: bytes) -> bytes:
    return encode_frame(frame[0], frame[FRAME_HEAD : _at_id(frame) + 4])


def huge_size(frame: bytes) -> bytes:
    """4 GiB are announced, and the bytes of the right answer follow."""
    return frame[:1] + b"\xff\xff\xff\xff" + frame[FRAME_HEAD:]


def huge_counts(frame: bytes) -> bytes:
    """Counts and lengths that are as large as they can be."""
    at = _at_id(frame) + 4
    return frame[:at] + b"\xff" * (len(frame) - at)


def ends_early(frame: bytes) -> bytes:
    return encode_frame(frame[0], frame[FRAME_HEAD:-1])


def surplus(frame: bytes) -> bytes:
    return encode_frame(frame[0], frame[FRAME_HEAD:], b"\x00")


def anything(frame: bytes) -> bytes:
    """Bytes by chance behind the request id, the same ones for the same length."""
    at = _at_id(frame) + 4
    return frame[:at] + random.Random(len(frame)).randbytes(len(frame) - at)


BYTES: tuple[Lie, ...] = (
    another_type,
    unknown_type,
    too_short_for_an_id,
    only_the_id,
    huge_size,
    huge_counts,
    ends_early,
    surplus,
    anything,
)
"""Lies that end a connection."""

SILENT: tuple[Lie, ...] = (wrong_id, nothing_at_all)
"""Lies after which the request times out."""


class lying:  # noqa: N801 - reads as what it does to a broker
    """Let the next ``times`` answers of type ``kind`` be a lie; ``left`` is how many are still to come."""

    def __init__(self, broker: TankDevBroker, kind: MessageType, lie: Lie, times: int = 1) -> None:
        self.left = times
        self._kind = kind
        self._lie = lie
        broker.tamper = self._tamper

    def _tamper(self, frame: bytes) -> bytes:
        if frame[0] != self._kind or not self.left:
            return frame
        self.left -= 1
        return self._lie(frame)
