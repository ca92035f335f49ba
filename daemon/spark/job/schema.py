"""Interfaces of schemas: the type of the records, and the functions that read a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

__all__ = ["Decoder", "Reader", "SchemaError"]


class SchemaError(ValueError):
    """A schema is unusable; the text tells its author why."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Functions that read one value in one process; they may raise any exception for a value of another schema.

    ``framed`` receives the bytes after the schema id of Confluent's framing, ``bare`` a whole value.
    """

    bare: Callable[[bytes], dict[str, Any]]
    framed: Callable[[bytes], dict[str, Any]]


class Decoder(Protocol):
    """Decodes one value into one record. Instances are pickled and sent to executors."""

    @property
    def record(self) -> pa.StructType:
        """The Arrow type of the records."""

    def compile(self) -> Reader:
        """Return the functions that read values in this process."""
