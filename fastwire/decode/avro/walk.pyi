from collections.abc import Iterable
from typing import Final, Self, final

from fastwire.decode.decoded import RecordDecoder
from fastwire.decode.program import Step
from fastwire.wire.pool import Pool

__all__ = ["REASONS", "AvroDecoder"]

REASONS: Final[tuple[str, ...]]

@final
class AvroDecoder(RecordDecoder):
    def __new__(
        cls, program: Iterable[Step], pool: Pool, *, framed: bool = False, written: Iterable[Step] | None = None
    ) -> Self: ...
    def add(self, id: int, program: Iterable[Step]) -> None: ...
    def refuse(self, id: int, reason: str) -> None: ...
