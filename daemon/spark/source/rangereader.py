"""The common base of the readers of a range, which yield the same rows at each attempt."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from fastwire.errors import FastwireError

from ...net.backoff import Backoff
from .prefetch import Give
from .ranges import DataLossError, Range

MOST_BACKOFF_S = 2.0

logger = logging.getLogger("fastwire.spark")


class TryAgainError(Exception):
    """An attempt has to begin anew at once, and otherwise; nothing is wrong with the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRules:
    """The rules of reading a range: patience, and the reaction to a loss."""

    patience_s: float
    fail_on_data_loss: bool
    name: str  # of who reads, for people who look at the broker


class RangeReader(ABC):
    """The rows of one range as Arrow batches with all columns that the connection builds."""

    def __init__(self, part: Range, rules: ReadingRules) -> None:
        self._part = part
        self._rules = rules
        self._at = part.start  # everything up to here was handed on
        self._end = part.end
        self._alive_at = 0.0
        self._give: Give

    @abstractmethod
    async def _attempt(self) -> None:
        """Read from ``_at`` to the end over one connection; note what was handed on, and signs of life."""

    @abstractmethod
    def _is_missing(self, error: FastwireError) -> bool:
        """Return whether the error means that the topic does not exist."""

    @abstractmethod
    def _is_for_good(self, error: FastwireError) -> bool:
        """Return whether a retry is useless."""

    async def read(self, give: Give) -> None:
        """Read to the end and ``give`` each batch in order.

        Connections that are lost are made anew, and reading goes on where it was. Raises DataLossError, or what the
        last attempt ended with when nothing came for ``patience_s``.
        """
        self._give = give
        self._alive_at = time.monotonic()
        backoff = Backoff(most_s=MOST_BACKOFF_S)
        while True:
            before = self._at
            try:
                await self._attempt()
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
                logger.warning("%s: %s; retrying", self._part, exc)
            await asyncio.sleep(backoff.next())

    async def _pass_on(self, batch: pa.RecordBatch) -> None:
        """Give ``batch``; the time that this takes is the taker's, and no silence of the broker."""
        await self._give(batch)
        self._alive_at = time.monotonic()

    def _lost(self, what: str) -> None:
        text = f"{self._part}: {what}"
        if self._rules.fail_on_data_loss:
            raise DataLossError(f"{text}; with failOnDataLoss=false this is logged and reading goes on")
        logger.warning("%s; reading goes on without it", text)
