from typing import Protocol, final

class ArrowArrayExportable(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class LineFormatter:
    rows: int
    def __init__(self, batch: ArrowArrayExportable) -> None: ...
    def read(self, max_bytes: int = 1048576) -> bytes: ...
