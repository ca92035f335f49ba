"""States of a connection, and the commands that a broker may send in each (spec: pulsar 2.4)."""

from enum import Enum, auto

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.request import REPLIES

_C = pb.BaseCommand


class State(Enum):
    """The state of a connection."""

    NEW = auto()
    HANDSHAKE = auto()  # CONNECT was sent
    READY = auto()
    CLOSED = auto()


# The commands that a broker may send in each state; a known command that is missing is a protocol error.
LEGAL = {
    State.NEW: frozenset[int](),
    State.HANDSHAKE: frozenset[int]({_C.CONNECTED, _C.ERROR, _C.AUTH_CHALLENGE}),
    State.READY: frozenset[int](
        {
            *REPLIES.values(),
            _C.ERROR,
            _C.PING,
            _C.PONG,
            _C.AUTH_CHALLENGE,
            _C.SEND_RECEIPT,
            _C.SEND_ERROR,
            _C.CLOSE_PRODUCER,
            _C.CLOSE_CONSUMER,
            _C.ACTIVE_CONSUMER_CHANGE,
            _C.REACHED_END_OF_TOPIC,
            _C.TOPIC_MIGRATED,
            _C.WATCH_TOPIC_UPDATE,
        }
    ),
    State.CLOSED: frozenset[int](),
}
