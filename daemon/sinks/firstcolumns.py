"""The columns that a sink begins with where they are inferred from the first values."""

import threading
from typing import TYPE_CHECKING

from fastwire.decode.evolution import Column

if TYPE_CHECKING:
    from .base import FindColumns
    from .valuedecoder import ValueDecoder

__all__ = ["FirstColumns"]


class FirstColumns:
    """Gives ``decoder`` the columns that ``find`` finds, which it does once."""

    def __init__(self, decoder: "ValueDecoder", find: "FindColumns") -> None:
        self._decoder = decoder
        self._find = find
        self._types: tuple[Column, ...] = ()

    def take(self, stop: threading.Event) -> None:
        """Decode into these columns from now on. Raises as ``find`` does."""
        if self._types:
            self._decoder.adopt(self._types)
        else:
            self._find(self._decoder, stop)
            self._types = self._decoder.types
