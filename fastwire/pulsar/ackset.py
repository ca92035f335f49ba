"""Batches of which some elements are done: what is left of each (pulsar 15.2, 15.3).

A set of elements is a number: bit i stands for the element with batch index i, and 1 means *not acknowledged*. A
message outside a batch is element 0. On the wire it is the long array of a Java BitSet: words of 64 bits, low first.
"""

from fastwire.position import Position

__all__ = ["AckSets", "bits_of", "words_of"]

Place = tuple[int, int]  # ledger, entry


def words_of(bits: int) -> bytes:
    """The words of a set, 8 bytes each, low first, without zero words at the end; empty for the empty set."""
    return bits.to_bytes((bits.bit_length() + 63) // 64 * 8, "little")


def bits_of(words: bytes) -> int:
    """What ``words_of`` wrote."""
    return int.from_bytes(words, "little")


class AckSets:
    """What is left of entries that are done in part. An entry that is not in here is whole, or done."""

    def __init__(self) -> None:
        self._left: dict[Place, int] = {}

    def __len__(self) -> int:
        return len(self._left)

    def take_out(self, place: Place, held: int, done: int) -> int:
        """Elements ``done`` of an entry are done; returns what is left of it, 0 if it is done as a whole.

        ``held`` are the elements that were delivered; only the first call for an entry looks at it. Elements that are
        done for a second time, and ones that were never delivered, change nothing.
        """
        left = self._left.get(place, held) & ~done
        if left:
            self._left[place] = left
        else:
            self._left.pop(place, None)
        return left

    def left(self, place: Place) -> int | None:
        """What is left of an entry that is done in part; None for any other."""
        return self._left.get(place)

    def forget(self, ledger: int, first: int, last: int) -> list[Place]:
        """These entries are done as a whole, or nothing of them counts any more; returns those that were here."""
        if not self._left:
            return []
        gone = [place for place in self._left if place[0] == ledger and first <= place[1] <= last]
        for place in gone:
            del self._left[place]
        return gone

    def forget_to(self, position: Position) -> list[Place]:
        """Everything up to ``position`` is done; returns the entries that were here."""
        gone = [place for place in self._left if place <= (position.a, position.b)]
        for place in gone:
            del self._left[place]
        return gone
