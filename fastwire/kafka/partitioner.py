"""Which partition a record goes to, as the Java producer decides it."""

__all__ = ["Partitioner", "murmur2"]

_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Murmur2 for 32-bit machines with the seed of the Java producer, as an unsigned number."""
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
    """Chooses among ``partitions``: by key, or for records without one the ``current`` partition.

    Whoever sends calls ``turn`` when a batch of the current one is closed: changing with each record would tear
    batches apart.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.current = 0

    def of_key(self, key: bytes) -> int:
        """The partition of every record with this key; an empty key is one, too."""
        return (murmur2(key) & _POSITIVE) % self.partitions

    def turn(self) -> None:
        """Go on to the next partition."""
        self.current = (self.current + 1) % self.partitions
