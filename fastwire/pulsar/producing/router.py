"""Routing of records to partitions, compatible with the official clients (spec: pulsar 24.3)."""

from collections.abc import Callable
from enum import Enum

from fastwire.producer import KeyPartitioner

_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def java_string_hash(key: str) -> int:
    """Return Java's ``String.hashCode`` without its sign. It counts UTF-16 code units, so some characters count
    twice.
    """
    units = key.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & _MASK
    return found & _POSITIVE


def murmur3_32(data: bytes) -> int:
    """Return the 32-bit Murmur3 hash with seed 0, unsigned."""
    whole = len(data) & ~3
    found = 0
    for at in range(0, whole, 4):
        found ^= _scramble(int.from_bytes(data[at : at + 4], "little"))
        found = (found << 13 | found >> 19) & _MASK
        found = (found * 5 + 0xE6546B64) & _MASK
    found ^= _scramble(int.from_bytes(data[whole:], "little"))  # an empty tail scrambles to 0
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _MASK
    found = (found ^ found >> 13) * 0xC2B2AE35 & _MASK
    return found ^ found >> 16


def _scramble(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    return word * 0x1B873593 & _MASK


def _murmur3_of_text(key: str) -> int:
    return murmur3_32(key.encode("utf-8", "surrogatepass")) & _POSITIVE


class Hashing(Enum):
    """Hash function for keys. JAVA is the default of the Java client; clients in C++ and Python must be configured for
    it.
    """

    JAVA = "java"
    MURMUR3 = "murmur3"


HASHES: dict[Hashing, Callable[[str], int]] = {Hashing.JAVA: java_string_hash, Hashing.MURMUR3: _murmur3_of_text}


class Router(KeyPartitioner[str]):
    """Chooses partitions as the official clients do.

    If ``rotate`` is false, all records without a key go to partition ``first``. Raises ValueError for no partitions.
    """

    def __init__(
        self, partitions: int, *, hashing: Hashing = Hashing.JAVA, first: int = 0, rotate: bool = True
    ) -> None:
        if partitions < 1:
            raise ValueError("a router needs at least one partition")
        super().__init__(partitions)
        self.current = first % partitions
        self.hashing = hashing
        self._hash = HASHES[hashing]
        self._rotate = rotate

    def of_key(self, key: str) -> int:
        """Return the partition of ``key``; a key of bytes is given as its base64 text."""
        return self._hash(key) % self.partitions

    def turn(self) -> None:
        """Advance to the next partition."""
        if self._rotate:
            super().turn()
