"""Routing of messages to partitions. TANK leaves the choice to the producer, so no other client's rule is followed."""

from zlib import crc32

from fastwire.producer import KeyPartitioner

_MULTIPLIER = 0x9E3779B1


class Partitioner(KeyPartitioner[bytes]):
    """Chooses partitions by the CRC-32 of the key. It is mixed, because its low bit ignores the last byte of a key."""

    def of_key(self, key: bytes) -> int:
        """Return the partition of ``key``; an empty key is a key."""
        return (crc32(key) * _MULTIPLIER >> 16 & 0xFFFF) % self.partitions
