"""Classification of broker errors that a retry cannot cure (spec: tank 7, 10)."""

from enum import IntEnum

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.tank.format.error import BrokerError, CreateCode, ProduceCode

from ...runtime.errors import ConfigurationRefused

# Codes of different answers are equal as numbers: they are compared as objects, by class and value.
_FOR_GOOD: tuple[IntEnum, ...] = (
    ProduceCode.READ_ONLY,
    CreateCode.BAD_CONFIGURATION,
    CreateCode.READ_ONLY,
    CreateCode.BAD_REQUEST,
    CreateCode.NOT_SUPPORTED,
)


def is_for_good(error: FastwireError) -> bool:
    """Return True if ``error`` needs a change of the configuration or of the broker: fatal at the first attempt."""
    if isinstance(error, BrokerError):
        return any(error.code is code for code in _FOR_GOOD)
    return isinstance(error, ConfigurationRefused | UnsupportedError)
