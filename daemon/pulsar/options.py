"""How people want to consume."""

from dataclasses import dataclass, field
from typing import Literal

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.deadletter import DeadLetterPolicy
from fastwire.pulsar.redelivery import RedeliveryBackoff

from .settings import WIRE_TYPES, SubscriptionType

__all__ = ["ConsumerOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How to consume. Times are in seconds; raises ValueError for values that make no sense together."""

    type: SubscriptionType = "exclusive"
    start: Literal["earliest", "latest"] = "latest"
    """Where a subscription begins that does not exist yet."""
    name: str = ""
    """Of this consumer; by default a random one. On Failover the names decide who is served."""
    window: int = 1000
    """Messages that a broker may send ahead, for each partition."""
    nack_backoff: RedeliveryBackoff = field(default_factory=RedeliveryBackoff)
    """How long records wait after a negative ack."""
    ack_timeout_s: float = 0.0
    """Records that were taken and not acknowledged for so long come again; 0: never, else 1 at least."""
    ack_group_s: float = 0.1
    """How long acks wait for others; 0 sends each at once."""
    batch_index_acks: bool = False
    """Tell the broker of single records of a batch before all of it is done. Only of use where the broker has
    acknowledgmentAtBatchIndexLevelEnabled; any other goes by whole batches, whatever it is told."""
    priority: int = 0
    """0 is served first."""
    read_compacted: bool = False
    """Only the newest record of each key, as far as the topic is compacted. Exclusive and Failover only."""
    hash_ranges: tuple[tuple[int, int], ...] = ()
    """Key_Shared: the hashes of keys that are ours, inclusive at both ends, 0 to 65535; none: the broker divides."""
    any_order: bool = False
    """Key_Shared: do not wait for what others have not acknowledged yet."""
    dead_letters: DeadLetterPolicy | None = None
    """Where entries go that came too often. Shared and Key_Shared only: on others brokers do not count."""
    create: bool = True
    """Whether a topic that is missing may come into being."""
    properties: tuple[tuple[str, str], ...] = ()
    """Of this consumer, for the topic's statistics."""
    partition_poll_s: float = 60.0
    """How often to look for new partitions, which are read from their beginning."""

    def __post_init__(self) -> None:
        if self.type not in WIRE_TYPES:
            raise ValueError(f"type is {self.type!r}; there are {', '.join(WIRE_TYPES)}")
        if self.start not in ("earliest", "latest"):
            raise ValueError(f"start is {self.start!r}; a new subscription begins at earliest or latest")
        if 0 < self.ack_timeout_s < 1 or self.ack_timeout_s < 0:
            raise ValueError("ack_timeout_s is 0 for none, or 1 at least")
        if self.ack_group_s < 0:
            raise ValueError("ack_group_s is negative")
        if self.read_compacted and not self.ordered:
            raise ValueError("read_compacted needs an exclusive or failover subscription")
        if self.dead_letters is not None and self.ordered:
            raise ValueError("dead_letters need a shared or key_shared subscription: on others brokers do not count")
        if self.hash_ranges and self.type != "key_shared":
            raise ValueError("hash_ranges are for key_shared subscriptions")

    @property
    def wire_type(self) -> "pb.CommandSubscribe.SubType":
        """The type's number."""
        return WIRE_TYPES[self.type]

    @property
    def ordered(self) -> bool:
        """Whether one consumer gets each partition, in order."""
        return self.type in ("exclusive", "failover")
