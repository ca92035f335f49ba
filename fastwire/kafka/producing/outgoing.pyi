from typing import final

from fastwire.columns.block import Block
from fastwire.columns.routes import Routes

__all__ = ["RecordBlock", "RecordRoutes"]

@final
class RecordRoutes(Routes): ...

@final
class RecordBlock(Block):
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
