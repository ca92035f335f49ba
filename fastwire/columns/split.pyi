from collections.abc import Mapping
from typing import Any

from fastwire.columns.chunk import Chunk

__all__ = ["single_group", "split_chunks"]

def single_group(chunk: Chunk, groups: Any) -> int: ...
def split_chunks(chunks: list[Chunk], groups: Any) -> Mapping[int, Chunk]: ...
