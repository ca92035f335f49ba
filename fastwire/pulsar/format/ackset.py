"""Ack sets: the unacknowledged elements of partly acknowledged batches (spec: pulsar 15.2, 15.3).

A set of elements is a number: bit i stands for the element with batch index i, and 1 means *not acknowledged*. A
message outside a batch is element 0. On the wire it is the long array of a Java BitSet: words of 64 bits, low first.
"""

from fastwire.position import Position

EntryId = tuple[int, int]  # ledger, entry


def words_of(bits: int) -> bytes:
    """Return the words of a set, 8 bytes each, low first, without trailing zero words; empty for the empty set."""
    return bits.to_bytes((bits.bit_length() + 63) // 64 * 8, "little")


def bits_of(words: bytes) -> int:
    """Return the set that ``words_of`` encoded."""
    return int.from_bytes(words, "little")


class AckSets:
    """The unacknowledged elements of partly acknowledged entries. An absent entry is wholly acknowledged, or not at
    all.
    """

    def __init__(self) -> None:
        self._left: dict[EntryId, int] = {}

    def __len__(self) -> int:
        return len(self._left)

    def take_out(self, place: EntryId, held: int, done: int) -> int:
        """Mark the elements ``done`` of an entry as acknowledged; return the remaining elements, 0 if there are none.

        ``held`` are the delivered elements; only the first call for an entry uses it. Elements that are acknowledged
        already, and elements that were never delivered, change nothing.
        """
        left = self._left.get(place, held) & ~done
        if left:
            self._left[place] = left
        else:
            self._left.pop(place, None)
        return left

    def left(self, place: EntryId) -> int | None:
        """Return the remaining elements of a partly acknowledged entry; None for any other entry."""
        return self._left.get(place)

    def forget(self, ledger: int, first: int, last: int) -> list[EntryId]:
        """Remove the entries ``first`` to ``last`` of a ledger; return those that were in the set."""
        if not self._left:
            return []
        gone = [place for place in self._left if place[0] == ledger and first <= place[1] <= last]
        for place in gone:
            del self._left[place]
        return gone

    def forget_to(self, position: Position) -> list[EntryId]:
        """Remove all entries up to ``position``; return those that were in the set."""
        gone = [place for place in self._left if place <= (position.a, position.b)]
        for place in gone:
            del self._left[place]
        return gone
