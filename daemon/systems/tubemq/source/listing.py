"""The partitions that the Master lists, asked for until it answers."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.tubemq.format.error import BrokerError

from ....net.backoff import Backoff
from ....runtime.logs import get_logger
from ...source import SourceFailed
from ..cluster import Cluster
from ..inventory import list_partitions
from .settings import TubeMQSettings

log = get_logger("source")


class _Source(Protocol):
    settings: TubeMQSettings
    cluster: Cluster
    patient: bool

    def is_fatal(self, error: FastwireError) -> bool: ...
    def is_for_good(self, error: FastwireError) -> bool: ...
    def is_of_login(self, error: FastwireError) -> bool: ...


class Listing:
    """Lists the partitions of a source's topics, by their keys.

    The Master lists partitions for producers only, and may refuse an account that is not one. ``denied`` is called
    with the refusal of a login that is tried again, and with None after an answer.
    """

    def __init__(self, source: _Source, denied: Callable[[FastwireError | None], None]) -> None:
        self._source = source
        self._denied = denied

    async def all(self) -> frozenset[str]:
        """Return the partitions that are there now. Raises SourceFailed where no retry helps."""
        return await self._ask(self._source.is_fatal)

    async def if_allowed(self, otherwise: str) -> frozenset[str]:
        """As ``all``, but an account that is refused finds none, and a warning says what follows: ``otherwise``."""
        try:
            return await self._ask(self._source.is_for_good)
        except SourceFailed as exc:
            if not isinstance(exc.__cause__, BrokerError):
                raise
            log.warning(f"the partitions cannot be listed: {otherwise}", error=str(exc))
            return frozenset()

    async def _ask(self, is_final: Callable[[FastwireError], bool]) -> frozenset[str]:
        source, backoff = self._source, Backoff()
        while True:
            try:
                listed = await list_partitions(source.cluster, source.settings, source.settings.topics)
                break
            except FastwireError as exc:
                if not source.patient or is_final(exc):
                    raise SourceFailed(f"{source.settings.url}: {exc}") from exc
                self._denied(exc if source.is_of_login(exc) else None)
                await asyncio.sleep(backoff.failed(log, "cannot list the partitions, retrying", exc))
        self._denied(None)
        return frozenset(place.key for places in listed.values() for place in places)
