"""The health of a pipeline and of a daemon: one enumeration and one function, for all that show or report it."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

StopReason = Literal[
    "undecodable",
    "encrypted",
    "reordered",
    "lost",
    "recreated",
    "start",
    "refused",
    "unreadable",
    "unwritable",
    "other",
]
"""Why a partition is stopped: the label of a metric.

undecodable: a batch, entry or value that may not become a dead letter; encrypted: no key opens an entry; reordered: an
entry came behind later ones; lost: the log lacks what has landed; recreated: another log has its place and is read;
start: ``start`` or ``end`` does not fit it; refused: the broker refuses it; unreadable: no broker delivers it;
unwritable: the sink refuses it.
"""


class Health(StrEnum):
    """The health of a pipeline or a daemon, the best first."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """Records land, but not all: a partition is stopped or cannot be read, or a sink or a table takes nothing."""
    NOT_READY = "not ready"
    """Nothing lands: it is starting or draining, has failed, or reaches no broker."""
    STUCK = "stuck"
    """A call of a sink does not end, for no known reason; only a restart helps."""


HUNG_AFTER_S = 120.0
"""A call of a sink may take long (a slow disk), but not for ever; waits with a known reason do not count."""
READY = frozenset({Health.HEALTHY, Health.DEGRADED})
"""Where records land."""
EXIT_DEGRADED = 5
"""Exit code of a daemon that has drained while partitions were stopped, and of ``status`` for one that is degraded."""
MOST_SHOWN = 100
"""Partitions of one kind in the status of a pipeline."""
_ORDER = tuple(Health)


def health_of(*, hung: bool, ready: bool, impaired: bool) -> Health:
    """Return the health of a pipeline.

    ``hung``: a call of its sink does not end; ``ready``: it reads or stands by; ``impaired``: some of it does not land.
    """
    if hung:
        return Health.STUCK
    if not ready:
        return Health.NOT_READY
    return Health.DEGRADED if impaired else Health.HEALTHY


def worst(healths: Iterable[Health]) -> Health:
    """Return the worst of ``healths``; a daemon without pipelines is not ready."""
    return max(healths, key=_ORDER.index, default=Health.NOT_READY)
