"""Checks and log lines for the first position of a log."""

from collections.abc import Iterable, Sequence

from fastwire.coverage import Coverage
from fastwire.position import Position, format_position

from ..runtime.logs import get_logger
from ..systems.source import Assignment, First, SourceFailed

log = get_logger("pipeline")


def refuse_lost_dataset(assignments: Iterable[Assignment], coverage: Coverage, system: str) -> None:
    """Raise SourceFailed if the broker has kept progress but the dataset does not exist.

    The file system may not be mounted; only the user can decide to begin a new dataset.
    """
    moved = [a for a in assignments if a.progress and coverage.start(a.log) is None]
    if moved:
        raise SourceFailed(
            f"the dataset does not exist, but records of {moved[0].log} have already been acknowledged to the broker"
            f" up to {format_position(system, moved[0].cursor or Position(-1, -1))}. If it should exist, find out why"
            " it does not (is its file system mounted, is sink.url that of its database?). To begin a new dataset"
            " after the acknowledged records, set sink.create = true",
            configuration=True,
        )


def tell_first_positions(firsts: Sequence[First], pipeline: str) -> None:
    """Log the gaps of records that the broker has deleted, and the logs that begin behind acknowledged records."""
    behind = [first.span.log for first in firsts if first.progress and first.span.gap is None]
    if behind:
        log.info(
            "reading begins after the records that have been acknowledged to the broker",
            pipeline=pipeline,
            logs=len(behind),
            first=str(behind[0]),
        )
    for first in firsts:
        log_ = first.span.log
        if first.span.gap is not None:
            log.warning(
                "the broker no longer has some records; a gap is declared",
                pipeline=pipeline,
                topic=log_.topic,
                partition=log_.partition,
                reason=first.span.gap.reason,
            )
