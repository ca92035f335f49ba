"""The choice of the replica that a partition is read from (KIP-392; spec: kafka 9.4)."""

from dataclasses import dataclass
from math import inf

PREFERRED_S = 300.0  # after which the leader is asked again for the preferred read replica
AVOIDED_S = 30.0


@dataclass(slots=True, eq=False)
class ReplicaChoice:
    """The replica that one partition is read from. Times are those of the loop, in seconds."""

    node: int = -1
    """The number of the node to read from; -1 for the leader's."""
    near: bool = True
    """True if the leader may name a replica that is nearer."""
    _ends: float = inf

    @property
    def at_leader(self) -> bool:
        """True if the partition is read from its leader."""
        return self.node < 0

    @property
    def open(self) -> bool:
        """True if the leader is read from, and may name a replica that is nearer."""
        return self.at_leader and self.near

    def is_over(self, now: float) -> bool:
        """Return True if the leader should be asked again for a replica."""
        return now >= self._ends

    def reset(self) -> None:
        """Read from the leader, which may name a replica."""
        self.node, self.near, self._ends = -1, True, inf

    def prefer(self, node: int, now: float) -> None:
        """Read from the preferred replica ``node`` that the leader has named."""
        self.node, self.near, self._ends = node, True, now + PREFERRED_S

    def avoid(self, now: float) -> None:
        """Read from the leader for a while: the replica has failed, or has refused a Fetch."""
        self.node, self.near, self._ends = -1, False, now + AVOIDED_S
