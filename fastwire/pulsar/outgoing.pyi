from typing import Self, final

from fastwire.columns.block import Block
from fastwire.columns.routes import Routes
from fastwire.columns.rows import Rows

__all__ = ["MessageBlock", "MessageRoutes"]

@final
class MessageRoutes(Routes):
    def __new__(cls, rows: Rows, now_ms: int, murmur3: bool = False) -> Self: ...

@final
class MessageBlock(Block):
    def __new__(cls, first_sequence: int) -> Self: ...
