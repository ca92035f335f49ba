from typing import Self, final

from typing_extensions import Buffer

@final
class Frame:
    def __new__(cls, data: Buffer) -> Self: ...
    @property
    def size(self) -> int: ...
