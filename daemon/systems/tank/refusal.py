"""Classification of broker errors that a retry cannot cure, and advice (spec: tank 5.7, 7, 10)."""

from enum import IntEnum

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.tank.error import BrokerError, CreateCode, PartitionStatus, ProduceCode

from ...runtime.errors import ConfigurationRefused

__all__ = ["is_for_good", "refusal"]

# Codes of different answers are equal as numbers: they are compared as objects, by class and value.
_FOR_GOOD: tuple[IntEnum, ...] = (
    ProduceCode.READ_ONLY,
    CreateCode.BAD_CONFIGURATION,
    CreateCode.READ_ONLY,
    CreateCode.BAD_REQUEST,
    CreateCode.NOT_SUPPORTED,
)
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


def refusal(code: IntEnum, what: str) -> BrokerError:
    """Return the error for ``what``, which a broker has refused with ``code``, with advice."""
    return BrokerError(code, what, next((text for one, text in _ADVICE if one is code), ""))


def is_for_good(error: FastwireError) -> bool:
    """Return True if ``error`` needs a change of the configuration or of the broker: fatal at the first attempt."""
    if isinstance(error, BrokerError):
        return any(error.code is code for code in _FOR_GOOD)
    return isinstance(error, ConfigurationRefused | UnsupportedError)
