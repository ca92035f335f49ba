"""The contract of table formats: the operations of a table in which a dataset is published.

Nothing is ever repeated behind it: after any error a commit may have taken effect, so the caller looks at the table and
decides again. The libraries of the formats would repeat a commit on a table that already has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fastwire.decode.evolution import Column

OWNER = "fastwire.dataset"
"""Property of a table: the id of the dataset that is published in it."""


TITLES = {"delta": "Delta", "iceberg": "Iceberg"}
"""The formats, with their names for users."""

EMPTY_TEXTS = frozenset({"iceberg"})
"""The formats in which an empty text can be a partition. In Delta, as in folders, it is null."""


class TableStoppedError(Exception):
    """The table cannot take files now; the text says why, for the user."""

    def named(self, text: str) -> "TableStoppedError":
        """Return the same error with another text."""
        return TableStoppedError(text)


class TableLateError(TableStoppedError):
    """The catalog has not answered a request for some ``seconds``, and the caller does not wait: look again soon."""

    def __init__(self, text: str, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(text)

    def named(self, text: str) -> "TableLateError":
        """Return the same error with another text."""
        return TableLateError(text, self.seconds)


class TableRacedError(Exception):
    """Another process has committed to the table since it was looked at."""


class AddedFile(NamedTuple):
    """A file for the table: its name in the dataset, and the values of the partition columns as text."""

    name: str
    nbytes: int
    rows: int
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """A table at one version."""

    version: int
    upto: int
    """The log entry up to which the files of the dataset are in it; 0: none."""
    types: Mapping[str, object]
    """The types of its columns, as :meth:`PublishedTable.type_of` has them."""
    strict: tuple[str, ...]
    """Its columns that take no nulls."""
    partitions: tuple[str, ...]
    """Its partition columns, outermost first."""
    trouble: str
    """The reason why no files can be added; "" without one."""


class PublishedTable(Protocol):
    """The table of one dataset.

    Every method may raise TableStoppedError, and OSError where the dataset cannot be reached or its disk is full.
    """

    title: str
    """The name of the format, for users."""
    url: str
    """The place or the name of the table, for users."""

    def type_of(self, column: Column) -> object:
        """Return the type that the table has for a column, in a form that can be compared and shown."""

    def begin(self, *, late: bool) -> None:
        """Begin a round of requests: a caller that does not wait gives one round a few seconds.

        With ``late`` a request of an earlier round is under way, and is not waited for.
        """

    def forget(self) -> None:
        """Read the whole table again at the next look: another one may be in its place."""

    def look(self) -> Seen | None:
        """Return the table as it is now; None if there is none."""

    def settle(self, version: int) -> None:
        """Make all versions up to ``version`` durable, as far as the format's library has not done so."""

    def create(self, columns: Sequence[Column], partitions: Sequence[str]) -> None:
        """Create the table with these columns. Raises TableRacedError if there is one now."""

    def add_columns(self, columns: Sequence[Column]) -> None:
        """Add columns, and fields that structs lack, to the table as it was seen last. Raises TableRacedError."""

    def add(self, files: Sequence[AddedFile], first: int, upto: int) -> None:
        """Add the files of log entries ``first`` to ``upto`` to the table as it was seen last. Raises TableRacedError.

        In the same commit the table notes ``upto``.
        """

    def files(self) -> dict[str, tuple[int, int | None]]:
        """Return the files of the table as it was seen last: size in bytes and rows (None: unknown), by name.

        Names are those in the dataset; a file outside of it has its full path or URL.
        """
