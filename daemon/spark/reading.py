"""Reading a range the same way each time, whatever happens to connections: what all systems share."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastwire.errors import FastwireError

from ..backoff import Backoff
from ..endpoint import LinkLost
from .blocking import BlockingLink
from .ranges import DataLossError, Range

__all__ = ["RangeReader", "ReadingRules", "TryAgainError"]

MOST_BACKOFF_S = 2.0

logger = logging.getLogger("fastwire.spark")


class TryAgainError(Exception):
    """An attempt has to begin anew at once, and otherwise; nothing is wrong with the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRules:
    """How a range is read: how much is asked for ahead, patience, and whether a loss is an error."""

    window: int
    patience_s: float
    fail_on_data_loss: bool
    name: str  # of who reads, for people who look at the broker


class RangeReader(ABC):
    """The rows of one range as Arrow batches with all columns that the connection builds.

    ``stopped`` is asked every moment; ``rest`` is for whoever cannot take rows just now, every second or so.
    """

    def __init__(self, part: Range, rules: ReadingRules, stopped: Callable[[], bool]) -> None:
        self._part = part
        self._rules = rules
        self._stopped = stopped
        self._at = part.start  # everything up to here was handed on
        self._end = part.end
        self._link: BlockingLink[Any, Any, Any] | None = None  # while an attempt reads by it
        self._alive_at = 0.0

    @abstractmethod
    def _attempt(self) -> Iterator[pa.RecordBatch]:
        """Read from ``_at`` to the end over one connection; note what was handed on, and signs of life."""

    @abstractmethod
    def _is_missing(self, error: FastwireError) -> bool:
        """Whether the topic does not exist."""

    @abstractmethod
    def _is_for_good(self, error: FastwireError) -> bool:
        """Whether trying again is of no use."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read to the end.

        Connections that are lost are made anew, and reading goes on where it was. Raises DataLossError, or what the
        last attempt ended with when nothing came for ``patience_s``.
        """
        self._alive_at = time.monotonic()
        backoff = Backoff(most_s=MOST_BACKOFF_S)
        while not self._stopped():
            before = self._at
            try:
                yield from self._attempt()
                return
            except TryAgainError:
                continue
            except FastwireError as exc:
                if self._is_missing(exc):
                    self._lost(f"the broker does not know the topic ({exc})")
                    return
                if isinstance(exc, DataLossError) or self._is_for_good(exc):
                    raise
                if self._at != before:
                    backoff.reset()
                if time.monotonic() - self._alive_at >= self._rules.patience_s:
                    patience = f"nothing came for {self._rules.patience_s:g} s"
                    raise FastwireError(f"{self._part}: {patience}, at last: {exc}") from None
                logger.warning("%s: %s; trying again", self._part, exc)
            time.sleep(backoff.next())

    def rest(self) -> None:
        """Keep the connection alive while nothing is taken; one that is lost is made anew by the next read."""
        self._alive_at = time.monotonic()
        if self._link is not None and self._link.ready:
            try:
                self._link.rest()
            except LinkLost:
                self._link.close()

    def _lost(self, what: str) -> None:
        text = f"{self._part}: {what}"
        if self._rules.fail_on_data_loss:
            raise DataLossError(f"{text}; with failOnDataLoss=false this is logged and reading goes on")
        logger.warning("%s; reading goes on without it", text)
