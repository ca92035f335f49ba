"""One consumer on one connection: its permits, and what it was sent (Pulsar 13)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .frame import MessageHeader

if TYPE_CHECKING:
    from .connection import PulsarConnection
    from .subscription import Subscription

__all__ = ["Consumer", "ConsumerState"]


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """What a test may ask about a consumer."""

    name: str
    consumer_id: int
    active: bool  # it is the one that an Exclusive or Failover subscription serves
    granted: int  # permits by FLOW since it subscribed
    debited: int  # permits that deliveries have cost since
    window: int  # the most permits that it may hold
    unacked: int  # messages sent to it and not acknowledged; counted on Shared and Key_Shared
    blocked: bool  # it gets nothing because of ``unacked``

    @property
    def permits(self) -> int:
        """What it may still be sent; negative after an entry that was larger than what was left."""
        return self.granted - self.debited


class Consumer:
    """Counts what its client granted against what it was sent."""

    def __init__(
        self,
        connection: "PulsarConnection",
        subscription: "Subscription",
        consumer_id: int,
        name: str,
        *,
        priority: int = 0,
        epoch: int | None = None,
        hash_ranges: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.connection = connection
        self.subscription = subscription
        self.consumer_id = consumer_id
        self.name = name
        self.priority = priority
        self.epoch = epoch
        self.hash_ranges = hash_ranges  # Key_Shared with sticky ranges: inclusive at both ends
        self.header = MessageHeader(consumer_id, subscription.topic.partition)
        self.ready = False  # its SUCCESS has been sent
        self.told_active: bool | None = None  # what its last ACTIVE_CONSUMER_CHANGE said
        self.told_end = False
        self.granted = 0
        self.debited = 0
        self.window = 0
        self.unacked = 0
        self.blocked = False

    @property
    def permits(self) -> int:
        """What it may still be sent."""
        return self.granted - self.debited

    @property
    def wants(self) -> bool:
        """Tell whether it can be sent an entry now."""
        return self.ready and self.granted > self.debited and self.connection.writable and not self.blocked

    def deliver(self, index: int, redelivery_count: int = 0) -> int:
        """Send one entry, debit what it costs, and return its size in bytes."""
        cursor = self.subscription.cursor
        entry = cursor.log[index]
        left = cursor.partial.get(index)
        self.debited += entry.messages if left is None else left.bit_count()
        cursor.delivered.add(index, index + 1)
        return self.connection.send_message(self, index, entry, left, redelivery_count)

    def count_unacked(self, messages: int, limit: int) -> None:
        """Change the count of unacknowledged messages; at ``limit`` deliveries stop until half of it is acked."""
        self.unacked += messages
        if self.unacked >= limit > 0:
            self.blocked = True
        elif self.unacked <= limit // 2:
            self.blocked = False

    def state(self) -> ConsumerState:
        """Return the figures as they are now."""
        return ConsumerState(
            self.name,
            self.consumer_id,
            self.subscription.dispatcher.active is self,
            self.granted,
            self.debited,
            self.window,
            self.unacked,
            self.blocked,
        )
