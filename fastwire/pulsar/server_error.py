"""What helps against each error that a broker may answer (pulsar 21)."""

from enum import Enum, auto

from fastwire.pulsar import pulsar_pb2 as pb

__all__ = ["Remedy", "remedy"]


class Remedy(Enum):
    """What whoever got an error should do about it."""

    PATIENCE = auto()  # the same request, later and after a new lookup
    TURN = auto()  # somebody else has it: later, and for somebody who comes back it may be a ghost of itself
    PERSON = auto()  # trying again will not help; somebody has to change a configuration, a permission, the topic


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
    """What helps against an error code; one that is newer than us is taken for one that passes."""
    return _REMEDIES.get(code, Remedy.PATIENCE)
