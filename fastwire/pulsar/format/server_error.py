"""Remedies for the errors of a broker (spec: pulsar 21)."""

from enum import Enum, auto

from fastwire.pulsar import pulsar_pb2 as pb


class Remedy(Enum):
    """The action that resolves an error."""

    PATIENCE = auto()  # retry later, after a new lookup
    TURN = auto()  # another client holds it: retry later; it may be this client's own session from before a reconnect
    PERSON = auto()  # a retry does not help; an operator must change the configuration, a permission or the topic


_REMEDIES: dict[int, Remedy] = {
    pb.UnknownError: Remedy.PATIENCE,
    pb.MetadataError: Remedy.PATIENCE,
    pb.PersistenceError: Remedy.PATIENCE,
    pb.AuthenticationError: Remedy.PERSON,
    pb.AuthorizationError: Remedy.PERSON,
    pb.ConsumerBusy: Remedy.TURN,
    pb.ServiceNotReady: Remedy.PATIENCE,
    pb.ProducerBlockedQuotaExceededError: Remedy.PATIENCE,
    pb.ProducerBlockedQuotaExceededException: Remedy.PATIENCE,
    pb.ChecksumError: Remedy.PATIENCE,
    pb.UnsupportedVersionError: Remedy.PERSON,
    pb.TopicNotFound: Remedy.PERSON,
    pb.SubscriptionNotFound: Remedy.PERSON,
    pb.ConsumerNotFound: Remedy.PATIENCE,
    pb.TooManyRequests: Remedy.PATIENCE,
    pb.TopicTerminatedError: Remedy.PERSON,
    pb.ProducerBusy: Remedy.TURN,
    pb.InvalidTopicName: Remedy.PERSON,
    pb.IncompatibleSchema: Remedy.PERSON,
    pb.ConsumerAssignError: Remedy.PERSON,
    pb.TransactionCoordinatorNotFound: Remedy.PATIENCE,
    pb.InvalidTxnStatus: Remedy.PERSON,
    pb.NotAllowedError: Remedy.PERSON,
    pb.TransactionConflict: Remedy.PATIENCE,
    pb.TransactionNotFound: Remedy.PERSON,
    pb.ProducerFenced: Remedy.PERSON,
}


def remedy(code: int) -> Remedy:
    """Return the remedy for an error code; an unknown code counts as transient."""
    return _REMEDIES.get(code, Remedy.PATIENCE)
