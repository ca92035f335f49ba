"""How far a subscription has come: what is acknowledged, in whole entries and in parts of batches (Pulsar 15)."""

from ..ranges import Ranges
from ..topiclog import TopicLog

__all__ = ["Cursor"]


class Cursor:
    """Acknowledgements by index of the log. Everything below ``mark`` is acknowledged."""

    def __init__(self, log: TopicLog, mark: int) -> None:
        self.log = log
        self.mark = mark
        self.partial: dict[int, int] = {}  # entry -> bits of the elements that are not acknowledged
        self.delivered = Ranges()  # entries that a consumer was ever sent
        self._acked = Ranges()  # entries above the mark

    def is_acked(self, index: int) -> bool:
        """Tell whether a whole entry is acknowledged."""
        return index < self.mark or index in self._acked

    def next_unacked(self, index: int) -> int:
        """Return the first entry from ``index`` on that is there and not acknowledged; it may be the log's end."""
        return self._acked.after(max(index, self.mark, self.log.start))

    def remaining(self, index: int) -> int:
        """Count the messages of an entry that are not acknowledged: what a delivery of it costs in permits."""
        if self.is_acked(index):
            return 0
        bits = self.partial.get(index)
        return self.log[index].messages if bits is None else bits.bit_count()

    def ack(self, index: int) -> None:
        """Acknowledge one entry."""
        if index < self.mark:
            return
        self.partial.pop(index, None)
        self._acked.add(index, index + 1)
        self._advance(self._acked.after(self.mark))

    def ack_to(self, index: int) -> None:
        """Acknowledge an entry and everything before it."""
        if index >= self.mark:
            self._advance(self._acked.after(index + 1))

    def ack_elements(self, index: int, left: int) -> None:
        """Acknowledge the elements of a batch whose bits are not in ``left``."""
        if self.is_acked(index):
            return
        bits = self.partial.get(index, (1 << self.log[index].messages) - 1) & left
        if bits:
            self.partial[index] = bits
        else:
            self.ack(index)

    def reset(self, index: int, left: int | None = None) -> None:
        """Begin again at ``index``, and if ``left`` is given with only those elements of it."""
        self.mark = index
        self._acked.clear()
        self.partial.clear()
        if left is not None and index < self.log.end:
            self.ack_elements(index, left)

    def follow_trim(self) -> None:
        """Pass over what the log has lost."""
        if self.log.start > self.mark:
            self._advance(self._acked.after(self.log.start))

    def backlog(self) -> int:
        """Count the messages that are not acknowledged."""
        left = self.log.messages - self.log.messages_before(self.mark)
        for start, end in self._acked:
            left -= self.log.messages_before(end) - self.log.messages_before(start)
        for index, bits in self.partial.items():
            left -= self.log[index].messages - bits.bit_count()
        return left

    def entries(self) -> int:
        """Count the entries that are not wholly acknowledged."""
        return self.log.end - self.mark - sum(end - start for start, end in self._acked)

    def _advance(self, mark: int) -> None:
        self.mark = mark
        self._acked.drop_below(mark)
        for index in [index for index in self.partial if index < mark]:
            del self.partial[index]
