"""Which of 65,536 slots a key belongs to: Murmur3, 32 bits, seed 0 (Pulsar 19)."""

from fastwire.pulsar.routing import murmur3_32

__all__ = ["SLOTS", "key_slot"]

SLOTS = 65536


def key_slot(key: bytes) -> int:
    """Return the slot of a key; records without a key share the slot of the empty one."""
    return (murmur3_32(key) & 0x7FFFFFFF) % SLOTS
