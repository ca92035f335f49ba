"""What a schema gives: the type of its records, and the function that reads one."""

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["Decoder", "SchemaError"]


class SchemaError(ValueError):
    """A schema that cannot be used; the text is for whoever wrote it."""


class Decoder(Protocol):
    """What turns one value into one record. Instances travel to executors, so they are pickled."""

    @property
    def record(self) -> pa.StructType:
        """The type of the records."""

    def compile(self) -> Callable[[bytes], dict[str, Any]]:
        """The function for one process; it raises whatever it likes for a value that is not of this schema."""
