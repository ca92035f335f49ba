"""Events of the connections of several systems, by which records are requested."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Connected:
    """The handshake is complete, with a login where there is one; requests may be made."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """The response to ``Connection.request``."""

    request_id: int
    answer: T


@dataclass(frozen=True, slots=True)
class FetchDone(Generic[T]):
    """The end of a response with records; these came before, in chunks or in the open one."""

    fetched: T


@dataclass(frozen=True, slots=True)
class CorruptFound(Generic[T]):
    """A partition whose records cannot be read on; its slot is detached."""

    found: T
