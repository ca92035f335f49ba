"""The contract by which records that were written to a topic are found again after their writer was lost."""

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Log, Position


class RecordsGone(FastwireError):  # noqa: N818 - what has happened to the records
    """Records behind a position cannot be read: they were deleted, or the topic is another one than before."""


class Recall(Protocol):
    """Looks at one topic. Its methods raise FastwireError where a broker refuses, or none can be reached."""

    async def ends(self) -> dict[Log, Position]:
        """Return the present end of each partition."""

    def behind(self, ends: Mapping[Log, Position]) -> AsyncGenerator[Chunk, None]:
        """Iterate over the records behind ``ends`` up to the present ends; new partitions from their beginning.

        Raises RecordsGone, in the end or before, if some of them may be missing.
        """

    async def fence(self, sender: str) -> None:
        """Return when no record of the writer with the name ``sender`` can be stored any more (``WriteOptions.name``).

        The process of the writer has ended, or its connections are closed. Where the brokers cannot refuse a request
        that is on its way, it waits for a time in which such a request arrives.
        """
