"""Classification of broker errors that a retry cannot cure (spec: pulsar 21)."""

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.server_error import Remedy
from fastwire.pulsar.protocol.request import BrokerError

from ...net.auth import AuthError
from ...net.endpoint import LinkLost, RequestTimeout
from ...runtime.errors import ConfigurationRefused


def is_for_good(error: FastwireError) -> bool:
    """Return True if ``error`` needs a change of configuration or permissions; fatal at the first attempt.

    What has worked once is better tried for ever: a permission or a token may come back.
    """
    if isinstance(error, BrokerError):
        return error.remedy is Remedy.PERSON
    return isinstance(error, ConfigurationRefused | UnsupportedError | AuthError)


def is_of_login(error: FastwireError) -> bool:
    """Return True if the broker refuses the credentials, or there are none."""
    refused = isinstance(error, BrokerError) and error.code == pb.AuthenticationError
    return refused or isinstance(error, AuthError)


def is_missing(error: FastwireError) -> bool:
    """Return True if the broker has answered that the topic does not exist."""
    return isinstance(error, BrokerError) and error.code == pb.TopicNotFound


def is_transient(error: FastwireError) -> bool:
    """Return True if the next try on the next connection may succeed: a topic that moves, a broker that is busy."""
    return isinstance(error, LinkLost) or (isinstance(error, BrokerError) and error.remedy is Remedy.PATIENCE)


def about(topic: str, error: FastwireError) -> FastwireError:
    """Return ``error`` with the topic in its text; brokers mostly leave it out."""
    if topic in str(error):
        return error
    named: FastwireError
    if isinstance(error, BrokerError):
        named = BrokerError(error.code, f"{topic}: {error.message}" if error.message else topic)
    elif isinstance(error, LinkLost | RequestTimeout):
        named = type(error)(f"{topic}: {error}")
    else:
        return error
    return named.with_traceback(error.__traceback__)
