from typing import Self, final

from fastwire.columns.block import Block
from fastwire.columns.routes import Routes
from fastwire.columns.rows import Rows

__all__ = ["MessageBlock", "MessageRoutes"]

@final
class MessageRoutes(Routes):
    def __new__(cls, rows: Rows, now_ms: int, murmur3: bool = False) -> Self: ...
    def group(self, first: int, stop: int) -> None: ...
    def runs(self, first: int, stop: int) -> list[tuple[int, int, tuple[int, bytes] | None]]: ...

@final
class MessageBlock(Block):
    def __new__(cls, first_sequence: int) -> Self: ...
