from typing import Protocol, Self, final, type_check_only

__all__ = ["Rows"]

@type_check_only
class _ArrowArrayExportable(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class Rows:
    @property
    def count(self) -> int: ...
    @property
    def origin(self) -> int: ...
    changed_times: int
    def __new__(cls, batch: _ArrowArrayExportable, *, text_keys: bool = False, origin: int = -1) -> Self: ...
    def __len__(self) -> int: ...
    def record(
        self, row: int
    ) -> tuple[
        bytes | None, str | bytes | None, tuple[tuple[str, bytes | None], ...], int | None, bytes | None, int | None
    ]: ...
