from fastwire.columns.chunk import Chunk
from fastwire.columns.layout import RowLayout

__all__ = ["ROW", "batch_index", "elements", "redeliveries"]

ROW: RowLayout

def elements(chunk: Chunk, first: int, end: int) -> list[tuple[int, int, int, int, int, int]]: ...
def batch_index(chunk: Chunk, row: int) -> int: ...
def redeliveries(chunk: Chunk, row: int) -> int: ...
