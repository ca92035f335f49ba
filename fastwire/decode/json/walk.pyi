from collections.abc import Iterable
from typing import Final, Self, final

from fastwire.decode.decoded import RecordDecoder
from fastwire.decode.program import Step
from fastwire.wire.pool import Pool

__all__ = ["REASONS", "JsonDecoder"]

REASONS: Final[tuple[str, ...]]

@final
class JsonDecoder(RecordDecoder):
    def __new__(
        cls,
        program: Iterable[Step],
        pool: Pool,
        *,
        loose: bool = False,
        closed: bool = False,
        raw: bool = False,
        partial: bool = False,
    ) -> Self: ...
    def refuse(self, id: int, reason: str) -> None: ...
