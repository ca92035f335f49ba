from collections.abc import Iterable
from typing import Any, Final, Self, final

from fastwire.decode.decoded import Decoded
from fastwire.decode.program import Step
from fastwire.wire.pool import Pool

__all__ = ["REASONS", "JsonDecoder"]

REASONS: Final[tuple[str, ...]]

@final
class JsonDecoder:
    def __new__(cls, program: Iterable[Step], pool: Pool) -> Self: ...
    def __arrow_c_schema__(self) -> object: ...
    def decode(self, values: Any, first: int = 0) -> Decoded: ...
