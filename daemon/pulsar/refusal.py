"""Which failures trying again cannot cure, for whoever connects to a cluster (pulsar 21)."""

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.pulsar.request import BrokerError
from fastwire.pulsar.server_error import Remedy

from ..auth import AuthError
from ..errors import ConfigurationRefused

__all__ = ["is_for_good"]


def is_for_good(error: FastwireError) -> bool:
    """Whether somebody has to change something before it can work: at a first attempt a reason to give up.

    What has worked once is better tried for ever: a permission or a token may come back.
    """
    if isinstance(error, BrokerError):
        return error.remedy is Remedy.PERSON
    return isinstance(error, ConfigurationRefused | UnsupportedError | AuthError)
