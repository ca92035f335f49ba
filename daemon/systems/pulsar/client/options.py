"""The options of a consumer."""

from dataclasses import dataclass, field
from typing import Literal

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.deadletter import DeadLetterPolicy
from fastwire.pulsar.protocol.redelivery import RedeliveryBackoff

from ..settings import WIRE_TYPES, SubscriptionType

MOST_HASH = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of a consumer. Times are in seconds. Raises ValueError for invalid or contradictory values."""

    type: SubscriptionType = "exclusive"
    start: Literal["earliest", "latest"] = "latest"
    """The first position of a subscription that does not exist yet."""
    name: str = ""
    """Name of this consumer; by default a random one. On Failover the names decide which consumer is active."""
    window: int = 1000
    """Messages that a broker may send ahead, for each partition."""
    nack_backoff: RedeliveryBackoff = field(default_factory=RedeliveryBackoff)
    """The delay of redelivery after a negative ack."""
    ack_timeout_s: float = 0.0
    """Records that were taken and not acknowledged for this time are redelivered; 0: never, else 1 at least."""
    ack_group_s: float = 0.1
    """The longest time that acks wait to be sent in a group; 0 sends each at once."""
    batch_index_acks: bool = False
    """Acknowledge single records of a batch on the broker before all of them are done. Useful only if the broker has
    acknowledgmentAtBatchIndexLevelEnabled; others acknowledge whole batches only."""
    priority: int = 0
    """On Failover and Shared: consumers with 0 are served first."""
    read_compacted: bool = False
    """Read only the newest record of each key, as far as the topic is compacted. Exclusive and Failover only."""
    hash_ranges: tuple[tuple[int, int], ...] = ()
    """Key_Shared: the key hashes of this consumer, inclusive at both ends, 0 to 65535; none: the broker divides."""
    any_order: bool = False
    """Key_Shared: do not wait for records that other consumers have not acknowledged yet."""
    dead_letters: DeadLetterPolicy | None = None
    """Policy for entries that were redelivered too often. Shared and Key_Shared only: others have no count."""
    create: bool = True
    """True if a missing topic may be created."""
    properties: tuple[tuple[str, str], ...] = ()
    """Properties of this consumer, for the topic's statistics."""
    subscription_properties: tuple[tuple[str, str], ...] = ()
    """Properties that the broker stores with a subscription that it creates."""
    replicate_state: bool = False
    """True to replicate the subscription's cursor to other clusters, with the topic."""
    schema: pb.Schema | None = None
    """Schema for SUBSCRIBE: the broker refuses the subscription if the topic has no compatible one
    (``fastwire.pulsar.protocol.schema.wire_schema``)."""
    partition_poll_s: float = 60.0
    """The interval of looking for new partitions, which are read from their beginning."""

    def __post_init__(self) -> None:
        if self.type not in WIRE_TYPES:
            raise ValueError(f"type is {self.type!r}; there are {', '.join(WIRE_TYPES)}")
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"start is {self.start!r}; a new subscription begins at earliest or latest")
        if 0 < self.ack_timeout_s < 1 or self.ack_timeout_s < 0:
            raise ValueError("ack_timeout_s must be 0 (none), or 1 at least")
        if self.ack_group_s < 0:
            raise ValueError("ack_group_s is negative")
        if self.priority < 0 or (self.priority and self.type in ("exclusive", "key_shared")):
            raise ValueError("priority must be 0 or more, and is for failover and shared subscriptions only")
        if self.any_order and self.type != "key_shared":
            raise ValueError("any_order is for key_shared subscriptions only")
        if self.read_compacted and not self.ordered:
            raise ValueError("read_compacted needs an exclusive or failover subscription")
        if self.dead_letters is not None and self.ordered:
            raise ValueError("dead_letters need a shared or key_shared subscription: brokers do not count on others")
        if self.hash_ranges and self.type != "key_shared":
            raise ValueError("hash_ranges are for key_shared subscriptions only")
        if not all(0 <= first <= last <= MOST_HASH for first, last in self.hash_ranges):
            raise ValueError(f"hash_ranges are pairs of a first and a last hash, from 0 to {MOST_HASH}")

    @property
    def wire_type(self) -> "pb.CommandSubscribe.SubType":
        """The subscription type on the wire."""
        return WIRE_TYPES[self.type]

    @property
    def ordered(self) -> bool:
        """True if each partition is delivered to one consumer, in order."""
        return self.type in ("exclusive", "failover")
