from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, final

__all__ = ["ParquetWriter"]

class _Schema(Protocol):
    def __arrow_c_schema__(self) -> Any: ...

class _Batch(Protocol):
    def __arrow_c_array__(self) -> Any: ...

@final
class ParquetWriter:
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        schema: _Schema,
        write: Callable[[bytes], Any],
        *,
        codec: str = "zstd",
        level: int | None = None,
        columns: Mapping[str, tuple[str, bool]] | None = None,
        metadata: Mapping[bytes, bytes] | None = None,
        buffer_bytes: int = 0,
    ) -> None: ...
    def write_row_group(self, batches: Iterable[_Batch]) -> None: ...
    def close(self) -> None: ...
