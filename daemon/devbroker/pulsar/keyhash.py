"""Which of 65,536 slots a key belongs to: Murmur3, 32 bits, seed 0 (Pulsar 19, 24.3)."""

__all__ = ["SLOTS", "key_slot", "murmur3_32"]

SLOTS = 65536
_MASK = 0xFFFFFFFF


def murmur3_32(data: bytes) -> int:
    """Return the hash as an unsigned number of 32 bits."""
    value = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        value = (value << 13 | value >> 19) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if whole != len(data):
        value ^= _mix(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def key_slot(key: bytes) -> int:
    """Return the slot of a key; records without a key share the slot of the empty one."""
    return (murmur3_32(key) & 0x7FFFFFFF) % SLOTS


def _mix(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    return word * 0x1B873593 & _MASK
