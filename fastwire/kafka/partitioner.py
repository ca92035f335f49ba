"""Routing of records to partitions, compatible with the Java producer."""

__all__ = ["Partitioner", "murmur2"]

_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return the 32-bit Murmur2 hash with the seed of the Java producer, unsigned."""
    found = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        found = found * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    found = (found ^ found >> 13) * _MULTIPLIER & _MASK
    return found ^ found >> 15


class Partitioner:
    """Chooses among ``partitions``: by key, or for records without a key the ``current`` partition.

    The producer calls ``turn`` when a batch of the current partition is closed: a change with each record would split
    batches.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.current = 0

    def of_key(self, key: bytes) -> int:
        """Return the partition of ``key``; an empty key is a key."""
        return (murmur2(key) & _POSITIVE) % self.partitions

    def turn(self) -> None:
        """Advance to the next partition."""
        self.current = (self.current + 1) % self.partitions
