"""Routing of records to partitions, compatible with the Java producer."""

from fastwire.producer import KeyPartitioner

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


class Partitioner(KeyPartitioner[bytes]):
    """Chooses partitions as the Java producer does: by Murmur2 of the key."""

    def of_key(self, key: bytes) -> int:
        """Return the partition of ``key``; an empty key is a key."""
        return (murmur2(key) & _POSITIVE) % self.partitions
