"""Classification of broker errors that a retry cannot cure (spec: kafka 16)."""

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.protocol.sasl import LoginRefusedError, SaslError

from ...net.auth import AuthError
from ...runtime.errors import ConfigurationRefused

_PERMISSIONS = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
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
        Code.INVALID_TRANSACTION_TIMEOUT,
    }
)


# What a Fetch is refused for, beside that, and will be again (spec: kafka 9.5).
_OF_READING = frozenset(
    {
        Code.CORRUPT_MESSAGE,
        Code.UNSUPPORTED_VERSION,
        Code.INVALID_REQUEST,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Code.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
_ADVICE = {
    Code.TOPIC_AUTHORIZATION_FAILED: "allow this user READ and DESCRIBE on the topic, then start again",
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow this user WRITE and DESCRIBE on the transactional id",
    Code.CLUSTER_AUTHORIZATION_FAILED: "allow this user what the broker's log says it has denied, then start again",
    Code.CORRUPT_MESSAGE: "the broker cannot read its own log there: look at its disk, or let another replica lead",
    Code.UNSUPPORTED_VERSION: "the broker cannot convert its stored records to a format that this client requests",
    Code.UNSUPPORTED_COMPRESSION_TYPE: "records compressed by zstd come from brokers from 2.1 on only",
    Code.INVALID_REQUEST: "the broker rejects the request as invalid: its log may say why",
    Code.FENCED_INSTANCE_ID: "another process has joined the group with the same group_instance_id, which is for one "
    "process: give each its own",
    Code.UNRELEASED_INSTANCE_ID: "a member with the same group_instance_id is in the group: end that process, or give "
    "each its own; that of a process that was killed is free when the coordinator's session timeout is over",
    Code.UNKNOWN_SERVER_ERROR: "the broker's own log says why",
    Code.KAFKA_STORAGE_ERROR: "the broker cannot use a disk; its log says why",
}


def ends_reading(code: int) -> bool:
    """Return True if a retry of a Fetch that failed with ``code`` cannot succeed."""
    return code in _FOR_GOOD | _PERMISSIONS | _OF_READING


def explained(error: FastwireError) -> str:
    """Return the text of ``error``, with advice if there is some."""
    if isinstance(error, BrokerError) and error.code in _ADVICE:
        return f"{error}; {_ADVICE[Code(error.code)]}"
    return str(error)


def is_for_good(error: FastwireError) -> bool:
    """Return True if ``error`` needs a change of configuration or permissions; fatal at the first attempt."""
    if isinstance(error, BrokerError):
        return error.code in _FOR_GOOD | _PERMISSIONS
    return isinstance(error, ConfigurationRefused | UnsupportedError | AuthError | SaslError)


def is_of_login(error: FastwireError) -> bool:
    """Return True if the broker refuses the credentials, or there are none."""
    refused = isinstance(error, BrokerError) and error.code == Code.SASL_AUTHENTICATION_FAILED
    return refused or isinstance(error, AuthError | LoginRefusedError)


def may_be_taken_back(error: FastwireError) -> bool:
    """Return True if ``error`` refuses credentials or permissions: a client that was accepted before should retry."""
    if isinstance(error, BrokerError):
        return error.code in _PERMISSIONS
    return isinstance(error, AuthError | SaslError)
