"""A chunk that a program has received from a consumer."""

from fastwire.columns.chunk import Chunk, DeadLetter


class ReceivedChunk:
    """A chunk with the Arrow C data interface: ``pyarrow.record_batch(chunk)`` takes it without a copy.

    The memory lives as long as this object or any Arrow object made from it, also after its consumer is closed. The
    records come from any of the partitions of the consumer, in the broker's order within each.
    """

    __slots__ = ("_chunk",)

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    def __arrow_c_schema__(self) -> object:
        return self._chunk.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._chunk.__arrow_c_array__(requested_schema)

    def __len__(self) -> int:
        return self._chunk.rows

    @property
    def chunk(self) -> Chunk:
        """The underlying chunk."""
        return self._chunk

    @property
    def rows(self) -> int:
        """The number of records; it may be 0 beside dead letters."""
        return self._chunk.rows

    @property
    def nbytes(self) -> int:
        """The memory of the chunk in bytes."""
        return self._chunk.nbytes

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Entries that cannot be decoded; acknowledging the whole chunk acknowledges them, too."""
        return self._chunk.dead_letters

    def release(self) -> None:
        """Release the memory now; acknowledging the whole chunk still works, and Arrow objects keep their memory."""
        self._chunk.release()
