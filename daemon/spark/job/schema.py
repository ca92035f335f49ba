"""Interfaces of schemas: the type of the records, and the function that decodes a column of values."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa


class SchemaError(ValueError):
    """A schema is unusable; the text tells its author why."""


class Decoded(NamedTuple):
    """The values from index ``first`` to before ``upto``: their records without the bad ones, in order."""

    records: pa.RecordBatch
    first: int
    upto: int
    bad: Sequence[tuple[int, str]]
    """The index of each bad value, ascending, and the reason why it is bad."""


Reader = Callable[[pa.Array], Iterator[Decoded]]
"""Decodes a column of bytes, in one or several parts."""


class Decoder(Protocol):
    """Decodes values into records. Instances are pickled and sent to executors."""

    @property
    def record(self) -> pa.StructType:
        """The Arrow type of the records, all of whose columns take nulls."""

    def compile(self) -> Reader:
        """Return the function that decodes values in this process."""
