"""Codes of TANK's answers, and the error for a refused request (spec: tank 5.2, 7, 10)."""

from enum import IntEnum

from fastwire.errors import FastwireError


class PartitionStatus(IntEnum):
    """State of a partition in an answer: the flags of a consume answer, and of a discover answer where it has some."""

    OK = 0x00
    BOUNDARY = 0x01
    SYSTEM_FAULT = 0xFB
    REDIRECT = 0xFC
    NO_LEADER = 0xFD
    OK_SPARSE = 0xFE  # without a base sequence: the first bundle has its own
    UNKNOWN_PARTITION = 0xFF
    UNKNOWN_TOPIC = 0x1FF  # not on the wire: the whole topic is unknown


class ProduceCode(IntEnum):
    """Result of one partition, or of a whole topic, in a produce answer."""

    STORED = 0
    UNKNOWN_PARTITION = 1
    IO_FAULT = 2
    TIMED_OUT = 3  # of the acknowledgements: it may be stored
    NOT_ENOUGH_REPLICAS = 4
    BAD_SEQUENCE = 10  # not above the last one
    REDIRECT = 0xFC
    NO_LEADER = 0xFD
    READ_ONLY = 0xFE
    UNKNOWN_TOPIC = 0xFF


class CreateCode(IntEnum):
    """Result of creating a topic."""

    CREATED = 0
    EXISTS = 1
    SYSTEM_FAULT = 2
    BAD_CONFIGURATION = 4
    READ_ONLY = 5
    BAD_REQUEST = 10
    NOT_SUPPORTED = 11


# Codes of different answers are equal as numbers: they are compared as objects, by class and value.
_ADVICE: tuple[tuple[IntEnum, str], ...] = (
    (PartitionStatus.SYSTEM_FAULT, "the broker cannot read or write the partition's log; its own log says why"),
    (PartitionStatus.NO_LEADER, "no broker leads the partition now; see which brokers of the cluster are up"),
    (ProduceCode.IO_FAULT, "the broker cannot write the partition's log; look at its disk"),
    (ProduceCode.NOT_ENOUGH_REPLICAS, "fewer replicas are in sync than the acknowledgements require"),
    (ProduceCode.BAD_SEQUENCE, "another producer writes to the partition"),
    (ProduceCode.READ_ONLY, "the broker was started read-only; write to another one"),
    (CreateCode.READ_ONLY, "the broker was started read-only; create the topic at another one"),
    (CreateCode.SYSTEM_FAULT, "the broker cannot make the folders of the topic; look at its disk"),
)


class BrokerError(FastwireError):
    """A broker has refused a request with ``code``; the message ends with advice where there is some."""

    def __init__(self, code: IntEnum, what: str, advice: str = "") -> None:
        self.code = code
        advice = advice or next((text for one, text in _ADVICE if one is code), "")
        super().__init__(f"{what}: {code.name.lower().replace('_', ' ')}" + (f"; {advice}" if advice else ""))
