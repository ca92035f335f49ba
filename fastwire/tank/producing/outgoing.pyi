from typing import final

from fastwire.columns.block import Block
from fastwire.columns.routes import Routes

__all__ = ["MessageBlock", "MessageRoutes"]

@final
class MessageRoutes(Routes): ...

@final
class MessageBlock(Block):
    def bundled(self, *, sparse: bool) -> bytes: ...
