from fastwire.columns.logs import LogTable

__all__ = ["PartitionSlots"]

class PartitionSlots(LogTable):
    def detach(self, index: int) -> None: ...
    def session(self, index: int) -> int: ...
