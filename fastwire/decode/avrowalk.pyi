from collections.abc import Iterable
from typing import Any, Final, Self, final

from fastwire.decode.decoded import Decoded
from fastwire.decode.program import Step
from fastwire.wire.pool import Pool

__all__ = ["REASONS", "AvroDecoder"]

REASONS: Final[tuple[str, ...]]

@final
class AvroDecoder:
    def __new__(
        cls, program: Iterable[Step], pool: Pool, *, framed: bool = False, written: Iterable[Step] | None = None
    ) -> Self: ...
    def add(self, id: int, program: Iterable[Step]) -> None: ...
    def refuse(self, id: int, reason: str) -> None: ...
    def __arrow_c_schema__(self) -> object: ...
    def decode(self, values: Any, first: int = 0) -> Decoded: ...
