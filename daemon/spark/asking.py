"""What the driver asks any system's brokers: patiently, and not more often than anybody can use."""

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from fastwire.errors import FastwireError
from fastwire.position import Position

from ..backoff import Backoff
from .options import Options
from .ranges import DataLossError, Partition

__all__ = ["AskingBroker"]

MOST_BACKOFF_S = 1.0
SMOOTHING = 0.2  # of a new figure in a running average

logger = logging.getLogger("fastwire.spark")

T = TypeVar("T")


class AskingBroker(ABC):
    """The part of a ``Broker`` that does not depend on the system."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._topics: dict[str, list[Partition]] = {}
        self._topics_at = -math.inf
        self._heads: dict[Partition, Position] = {}
        self._heads_at = -math.inf
        self._heads_of: set[Partition] = set()  # who was asked for, whether there or not
        self._row_bytes = 100.0
        self._sampled = False

    @abstractmethod
    def _find_topics(self) -> dict[str, list[Partition]]:
        """The partitions of each topic that the options want, by the name that they have for it."""

    @abstractmethod
    def _ask_heads(self, partitions: list[Partition]) -> dict[Partition, Position]:
        """Where partitions end, without those that do not exist."""

    @abstractmethod
    def _hopeless(self, error: FastwireError) -> bool:
        """Whether asking again is of no use."""

    @abstractmethod
    def _sample(self, partition: Partition, head: Position) -> None:
        """Look at the last records of a partition that has some, for the running averages."""

    def partitions(self) -> list[Partition]:
        """What the query reads now; looked for anew every ``topicRefreshIntervalMs``."""
        options = self._options
        if options.assigned is not None:
            return sorted(options.assigned)
        now = time.monotonic()
        if now - self._topics_at >= options.refresh_s:
            self._topics = self.patiently("finding the partitions", self._find_topics)
            self._topics_at = now
        return sorted({partition for found in self._topics.values() for partition in found})

    def topics(self) -> set[str]:
        """By the names that the options have."""
        return set(self._topics) if self._options.assigned is None else set()

    def heads(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """Where each partition ends; asked of the brokers every ``offsetPollIntervalMs`` at most."""
        wanted = list(partitions)
        now = time.monotonic()
        if now - self._heads_at >= self._options.poll_s or not self._heads_of.issuperset(wanted):
            self._heads_of = set(wanted)
            self._heads = self.patiently("asking where topics end", lambda: self._ask_heads(wanted))
            self._heads_at = time.monotonic()
        return {partition: self._heads[partition] for partition in wanted if partition in self._heads}

    def bytes_per_row(self) -> float:
        """Of the records that were looked at."""
        if not self._sampled:
            for partition, head in self._heads.items():
                self._sample(partition, head)
                if self._sampled:
                    break
        return self._row_bytes

    def _saw(self, payload_bytes: int, rows: int) -> None:
        """Records of this size were looked at."""
        self._row_bytes += SMOOTHING * (payload_bytes / rows - self._row_bytes)
        self._sampled = True

    def patiently(self, what: str, work: Callable[[], T], most_s: float = math.inf) -> T:
        """Do ``work``; what may be otherwise in a moment is tried again, for as long as the query has patience.

        At most ``most_s`` of it.

        A stream that raises is ended by Spark, and brokers restart.
        """
        options = self._options
        until = time.monotonic() + min(options.patience_s, most_s)
        backoff = Backoff(first_s=options.retry_s, most_s=MOST_BACKOFF_S)
        while True:
            try:
                return work()
            except FastwireError as exc:
                if isinstance(exc, DataLossError) or self._hopeless(exc):
                    raise
                if time.monotonic() >= until and backoff.failures >= options.retries:
                    raise FastwireError(f"{what}: {exc}") from None
                if backoff.failures == options.retries:
                    logger.warning("%s: %s; trying again", what, exc)
            time.sleep(backoff.next())
