"""Classification of broker errors that a retry cannot cure (spec: pulsar 21)."""

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.pulsar.request import BrokerError
from fastwire.pulsar.server_error import Remedy

from ...net.auth import AuthError
from ...runtime.errors import ConfigurationRefused

__all__ = ["is_for_good"]


def is_for_good(error: FastwireError) -> bool:
    """Return True if ``error`` needs a change of configuration or permissions; fatal at the first attempt.

    What has worked once is better tried for ever: a permission or a token may come back.
    """
    if isinstance(error, BrokerError):
        return error.remedy is Remedy.PERSON
    return isinstance(error, ConfigurationRefused | UnsupportedError | AuthError)
