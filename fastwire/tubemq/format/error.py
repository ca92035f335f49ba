"""Error codes of TubeMQ and what helps against each (spec: tubemq 15), and the exceptions of the envelope."""

from dataclasses import dataclass
from enum import Enum, IntEnum

from fastwire.errors import FastwireError


class Code(IntEnum):
    """``errCode`` of a response. Codes that only clients use among themselves are not listed."""

    SUCCESS = 200
    NOT_READY = 201
    MOVED = 301
    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    FORBIDDEN = 403
    NOT_FOUND = 404
    PARTITION_OCCUPIED = 410
    HB_NO_NODE = 411
    DUPLICATE_PARTITION = 412
    CERTIFICATE_FAILURE = 415
    SERVER_RECEIVE_OVERFLOW = 419
    CLIENT_INCONSISTENT_CONSUMETYPE = 424
    CLIENT_INCONSISTENT_TOPICSET = 425
    CLIENT_INCONSISTENT_FILTERSET = 426
    CLIENT_INCONSISTENT_SESSIONKEY = 427
    CLIENT_INCONSISTENT_SELECTBIG = 428
    CLIENT_INCONSISTENT_SOURCECOUNT = 429
    CLIENT_DUPLICATE_INDEXID = 430
    TOPIC_NOT_DEPLOYED = 431
    CONSUME_GROUP_FORBIDDEN = 450
    SERVER_CONSUME_SPEED_LIMIT = 452
    CONSUME_CONTENT_FORBIDDEN = 455
    INTERNAL_SERVER_ERROR = 500
    SERVICE_UNAVAILABLE = 503
    INTERNAL_SERVER_ERROR_MSGSET_NULL = 510


class Remedy(Enum):
    """The action of a client after an error code."""

    NONE = "no error"
    WAIT = "wait, then send the same request again"
    FORBIDDEN = "the partition is closed or missing: wait long, then try again"
    AT_END = "no more messages: wait"
    SLOW_DOWN = "the speed limit of the broker: wait as long as the response says"
    LEAVE = "the partition has another owner: leave it to the next balance round"
    REGISTER = "the server does not know the client or the partition: register again"
    DROP = "the partition is lost: drop it and report it to the Master"
    CREDENTIALS = "the credentials or the visit token are refused"
    FATAL = "the configuration of the client contradicts the group or the cluster"


_REMEDIES: dict[int, Remedy] = {
    Code.SUCCESS: Remedy.NONE,
    Code.NOT_READY: Remedy.WAIT,
    Code.MOVED: Remedy.WAIT,
    Code.BAD_REQUEST: Remedy.WAIT,
    Code.UNAUTHORIZED: Remedy.DROP,
    Code.FORBIDDEN: Remedy.FORBIDDEN,
    Code.NOT_FOUND: Remedy.AT_END,
    Code.PARTITION_OCCUPIED: Remedy.LEAVE,
    Code.HB_NO_NODE: Remedy.REGISTER,
    Code.DUPLICATE_PARTITION: Remedy.DROP,
    Code.CERTIFICATE_FAILURE: Remedy.CREDENTIALS,
    Code.SERVER_RECEIVE_OVERFLOW: Remedy.WAIT,
    Code.CLIENT_INCONSISTENT_CONSUMETYPE: Remedy.FATAL,
    Code.CLIENT_INCONSISTENT_TOPICSET: Remedy.FATAL,
    Code.CLIENT_INCONSISTENT_FILTERSET: Remedy.FATAL,
    Code.CLIENT_INCONSISTENT_SESSIONKEY: Remedy.FATAL,
    Code.CLIENT_INCONSISTENT_SELECTBIG: Remedy.FATAL,
    Code.CLIENT_INCONSISTENT_SOURCECOUNT: Remedy.FATAL,
    Code.CLIENT_DUPLICATE_INDEXID: Remedy.WAIT,  # a node that was killed has its number until its time is over
    Code.TOPIC_NOT_DEPLOYED: Remedy.FATAL,
    Code.CONSUME_GROUP_FORBIDDEN: Remedy.FATAL,
    Code.SERVER_CONSUME_SPEED_LIMIT: Remedy.SLOW_DOWN,
    Code.CONSUME_CONTENT_FORBIDDEN: Remedy.FATAL,
    Code.INTERNAL_SERVER_ERROR: Remedy.WAIT,
    Code.SERVICE_UNAVAILABLE: Remedy.WAIT,
    Code.INTERNAL_SERVER_ERROR_MSGSET_NULL: Remedy.WAIT,
}


# Advice to the user, where more than a retry helps, or where it is not plain what is waited for.
_ADVICE = {
    Code.FORBIDDEN: "the topic is closed or does not exist at this Broker: an administrator opens it",
    Code.PARTITION_OCCUPIED: "another consumer of the group has it, or had it until it was killed: a Broker frees it "
    "after its timeout, 35 s as shipped",
    Code.DUPLICATE_PARTITION: "another consumer of the group has it now",
    Code.CERTIFICATE_FAILURE: "check auth and the clock of this machine: a signature is valid for 20 s",
    Code.SERVER_RECEIVE_OVERFLOW: "the Broker cannot store as fast as messages come",
    Code.CLIENT_INCONSISTENT_CONSUMETYPE: "the members of a group have the same balance: change balance, or take "
    "another group",
    Code.CLIENT_INCONSISTENT_TOPICSET: "the members of a group read the same topics: change topics, or take another "
    "group",
    Code.CLIENT_INCONSISTENT_FILTERSET: "the members of a group have the same filters: change filters, or take another "
    "group",
    Code.CLIENT_INCONSISTENT_SESSIONKEY: "other clients read with a session of their own: take another group",
    Code.CLIENT_INCONSISTENT_SELECTBIG: "other clients read with a session of their own: take another group",
    Code.CLIENT_INCONSISTENT_SOURCECOUNT: "the members of a group have the same source_count: their number",
    Code.CLIENT_DUPLICATE_INDEXID: "each member of a group has a node_id of its own; that of a member that was killed "
    "is free after the Master's timeout, 30 s as shipped",
    Code.TOPIC_NOT_DEPLOYED: "check the names in topics, or let an administrator create the topic",
    Code.CONSUME_GROUP_FORBIDDEN: "an administrator allows the group to read the topics",
    Code.SERVER_CONSUME_SPEED_LIMIT: "an administrator has limited how fast the cluster is read",
    Code.CONSUME_CONTENT_FORBIDDEN: "the group may read some values of filters only: ask an administrator which",
}


def remedy_of(code: int) -> Remedy:
    """Return the action after ``code``; an unknown code means WAIT."""
    return _REMEDIES.get(code, Remedy.WAIT)


def name_of(code: int) -> str:
    """Return the name of ``code`` with its number, or only the number of an unknown one."""
    try:
        return f"{Code(code).name} ({code})"
    except ValueError:
        return str(code)


def advice_of(code: int) -> str:
    """Return advice for the user after ``code``; "" if a retry is all that helps."""
    try:
        return _ADVICE.get(Code(code), "")
    except ValueError:
        return ""


class BrokerError(FastwireError):
    """A response with an error code: ``code`` and the text of the server. The message adds advice."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
        message = f"{name_of(code)}: {text}" if text else name_of(code)
        advice = advice_of(code)
        super().__init__(f"{message} ({advice})" if advice else message)

    @property
    def remedy(self) -> Remedy:
        """The action that helps."""
        return remedy_of(self.code)


@dataclass(frozen=True, slots=True)
class Refused:
    """A response of status 1 or 2: the server threw an exception instead of answering (spec: tubemq 5).

    ``fatal`` (status 2) means that the server could not decode the request, or does not serve it yet.
    """

    exception: str
    text: str
    fatal: bool

    @property
    def standby(self) -> bool:
        """True if this Master is a stand-by: the next Master serves the request.

        The package in the name depends on the version in the request, so only its end counts.
        """
        return self._is("StandbyException")

    @property
    def stopping(self) -> bool:
        """True if the server starts or stops."""
        return self._is("ServiceStoppingException") or self._is("ServerNotReadyException")

    def _is(self, name: str) -> bool:
        return self.exception.replace("$", ".").rpartition(".")[2] == name
