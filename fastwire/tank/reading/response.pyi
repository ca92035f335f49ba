from dataclasses import dataclass

__all__ = ["Fetched", "Planned"]

@dataclass(frozen=True, slots=True)
class Planned:
    topics: dict[bytes, dict[int, tuple[int, int]]]

@dataclass(frozen=True, slots=True)
class Fetched:
    request_id: int
    received: int
    unknown: int
    answered: tuple[int, ...]
