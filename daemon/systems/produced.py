"""Results and errors that the producers of all systems share."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastwire.errors import FastwireError


class ProduceError(FastwireError):
    """Records were not stored, or their state is unknown; ``__cause__`` is the broker's or the client's error."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Rows that the broker stores never, by their numbers (see ``Rows``), while it may store all others."""

    origins: Sequence[int]
    error: ProduceError


@dataclass(slots=True)
class Produced:
    """Totals of the confirmed records, their entries (batches, say), and the bytes of these entries.

    The chunks of a record count as one entry.
    """

    records: int = 0
    entries: int = 0
    bytes: int = 0
    trouble: str = ""
    """The reason why records wait, as a broker or the driver has said last; "" since records were confirmed."""
