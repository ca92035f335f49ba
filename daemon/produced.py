"""What producers of every system tell."""

from dataclasses import dataclass

from fastwire.errors import FastwireError

__all__ = ["ProduceError", "Produced"]


class ProduceError(FastwireError):
    """Records were not stored, or it is not known whether they are; ``__cause__`` is what the broker or we say."""


@dataclass(slots=True)
class Produced:
    """What was confirmed so far; ``entries`` are what records share, such as batches, and ``bytes`` are theirs.

    The chunks of a record count as one entry.
    """

    records: int = 0
    entries: int = 0
    bytes: int = 0
