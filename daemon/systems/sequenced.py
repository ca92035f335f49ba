"""The contract of writers to a topic whose brokers drop what they have stored already, by the numbers of records."""

from collections.abc import Collection, Sequence
from typing import Protocol

from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError

from .writer import ConfirmedWriter


class NotDeduplicated(FastwireError):  # noqa: N818 - what the brokers do
    """The brokers of the topic do not keep the numbers of records."""


class SequencedWriter(ConfirmedWriter, Protocol):
    """A writer whose brokers keep the last number of each stream, so that a record is stored once.

    A record must get the same number and the same partition whenever it is written again. ``flush`` raises
    NotDeduplicated if the brokers keep no numbers; records may have been stored then.
    """

    @property
    def routing(self) -> tuple[str, ...]:
        """The facts that decide about the partition of a record: compare them with those of earlier writers."""

    def use(self, routing: tuple[str, ...]) -> None:
        """Route records as an earlier writer did. Raises ValueError if the topic or the options do not allow it."""

    @property
    def unknown(self) -> Collection[str]:
        """The streams of which the brokers knew no number when they were opened."""

    async def write_numbered(self, rows: Rows, stream: str, numbers: Sequence[int]) -> None:
        """Take the rows of one stream, whose numbers rise from row to row; the brokers drop those that are stored.

        Waits while another writer writes the stream. Raises ValueError as ``Writer.write_rows``; none is taken then.
        """
