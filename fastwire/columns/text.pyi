from collections.abc import Callable, Iterable
from typing import Protocol, Self, final, type_check_only

__all__ = ["LineFormatter"]

@type_check_only
class _ArrowArrayExportable(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class LineFormatter:
    @property
    def rows(self) -> int: ...
    def __new__(cls, batch: _ArrowArrayExportable, *, base64: Iterable[str] = ()) -> Self: ...
    def write(self, take: Callable[[bytes], object], piece_bytes: int = 1048576) -> None: ...
