"""Settings of a producer (spec: pulsar 11, 24)."""

from dataclasses import dataclass, field
from enum import Enum

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Encrypt
from fastwire.pulsar.producing.batcher import BatchLimits


class Access(Enum):
    """Access mode of a producer (spec: pulsar 24.4)."""

    SHARED = pb.Shared
    EXCLUSIVE = pb.Exclusive  # refused if the topic has another producer
    WAIT_FOR_EXCLUSIVE = pb.WaitForExclusive
    EXCLUSIVE_WITH_FENCING = pb.ExclusiveWithFencing  # the broker fences off other producers of the topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer; the defaults are those of Java's client, but for the keys of a batch.

    With ``batching`` None each record is sent alone. With ``chunking`` a record that is too large for one message is
    sent in chunks. With ``first_sequence_id`` None the numbers continue after the last one that the broker has stored
    for ``name``. Without ``resend`` a producer that loses its connection before all receipts have come has failed.
    """

    name: str = ""  # "": the broker assigns one
    access: Access = Access.SHARED
    compression: Compression = Compression.NONE
    batching: BatchLimits | None = field(default_factory=BatchLimits)
    chunking: bool = False
    schema: pb.Schema | None = None
    encrypt: Encrypt | None = None
    properties: tuple[tuple[str, str], ...] = ()  # of the producer, shown in the topic's statistics
    initial_subscription: str = ""  # created with the topic, so that it retains records before the first reader
    first_sequence_id: int | None = None
    send_timeout_s: float | None = 30.0  # from the call of ``send``; None: no timeout
    resend: bool = True
    keeps_numbers: bool = False  # numbers are of the caller, and tell the broker what it has stored: see ``_may_go``
