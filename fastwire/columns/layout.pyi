from collections.abc import Iterable
from typing import final

from fastwire.columns.schema import Role, StoredColumn

__all__ = ["RowLayout"]

@final
class RowLayout:
    @property
    def system(self) -> str: ...
    @property
    def columns(self) -> tuple[StoredColumn, ...]: ...
    @property
    def place(self) -> tuple[str, ...]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    def __init__(
        self,
        system: str,
        *,
        offset: Role,
        timestamp: Role,
        own: Iterable[StoredColumn] = (),
        place: Iterable[str] = ("offset",),
    ) -> None: ...
    def mask(self, names: Iterable[str] | None = None) -> int: ...
