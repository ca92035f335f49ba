from collections.abc import Iterable, Sequence
from typing import Final, Self, final

from fastwire.decode.decoded import RecordDecoder
from fastwire.decode.program import Step
from fastwire.wire.pool import Pool

__all__ = ["MOST_INDEXES", "REASONS", "ProtobufDecoder"]

MOST_INDEXES: Final[int]
REASONS: Final[tuple[str, ...]]

@final
class ProtobufDecoder(RecordDecoder):
    def __new__(
        cls, program: Iterable[Step], pool: Pool, *, framed: bool = False, written: Iterable[Step] | None = None
    ) -> Self: ...
    def add(self, id: int, program: Iterable[Step], paths: Sequence[Sequence[int]] = ()) -> None: ...
    def refuse(self, id: int, reason: str) -> None: ...
