"""Which failures trying again cannot cure, for whoever connects to a cluster (kafka 16)."""

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.sasl import SaslError

from ..auth import AuthError
from ..errors import ConfigurationRefused

__all__ = ["is_for_good", "may_be_taken_back"]

_PERMISSIONS = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.UNSUPPORTED_SASL_MECHANISM,
        Code.SASL_AUTHENTICATION_FAILED,
    }
)
_FOR_GOOD = frozenset(
    {
        Code.INVALID_TOPIC_EXCEPTION,
        Code.INCONSISTENT_GROUP_PROTOCOL,
        Code.INVALID_GROUP_ID,
        Code.INVALID_SESSION_TIMEOUT,
        Code.GROUP_MAX_SIZE_REACHED,
        Code.FENCED_INSTANCE_ID,
        Code.UNSUPPORTED_ASSIGNOR,
        Code.INVALID_REGULAR_EXPRESSION,
    }
)


def is_for_good(error: FastwireError) -> bool:
    """Whether somebody has to change something before it can work: at a first attempt a reason to give up."""
    if isinstance(error, BrokerError):
        return error.code in _FOR_GOOD | _PERMISSIONS
    return isinstance(error, ConfigurationRefused | UnsupportedError | AuthError | SaslError)


def may_be_taken_back(error: FastwireError) -> bool:
    """Whether the refusal is of who we are or what we may do: whoever was let in once had better try for ever."""
    if isinstance(error, BrokerError):
        return error.code in _PERMISSIONS
    return isinstance(error, AuthError | SaslError)
