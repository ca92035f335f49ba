from collections.abc import Iterable
from typing import Any, Final, Self, final

from fastwire.decode.program import BadRecord, Step
from fastwire.wire.pool import Pool

__all__ = ["REASONS", "AvroDecoder", "Decoded"]

REASONS: Final[tuple[str, ...]]

@final
class Decoded:
    @property
    def bad(self) -> list[BadRecord]: ...
    @property
    def rows(self) -> int: ...
    @property
    def upto(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

@final
class AvroDecoder:
    def __new__(cls, program: Iterable[Step], pool: Pool) -> Self: ...
    def __arrow_c_schema__(self) -> object: ...
    def decode(self, values: Any, first: int = 0) -> Decoded: ...
