from dataclasses import dataclass

__all__ = ["Fetched", "Planned"]

@dataclass(frozen=True, slots=True)
class Planned:
    version: int
    read_committed: bool
    topics: dict[bytes, dict[int, tuple[int, int]]]

@dataclass(frozen=True, slots=True)
class Fetched:
    correlation_id: int
    throttle_ms: int
    error: int
    session_id: int
    received: int
    unknown: int
    answered: tuple[int, ...]
    nodes: tuple[tuple[int, str, int], ...]
