"""Where the reading of a log begins: what has to be refused, and what people should be told."""

from collections.abc import Iterable, Sequence

from fastwire.position import Coverage, Position, format_position

from .logs import get_logger
from .sources.base import Assignment, First, SourceFailed

__all__ = ["refuse_lost_dataset", "tell_first_positions"]

log = get_logger("pipeline")


def refuse_lost_dataset(assignments: Iterable[Assignment], coverage: Coverage, system: str) -> None:
    """Raise SourceFailed for a subscription that has moved where there is no dataset.

    Was /data not mounted? Only the user can tell.
    """
    moved = [a for a in assignments if a.progress and coverage.start(a.log) is None]
    if moved:
        raise SourceFailed(
            f"the dataset does not exist, but the subscription has already confirmed records of {moved[0].log}"
            f" up to {format_position(system, moved[0].cursor or Position(-1, -1))}. If the folder"
            " should be there, look why it is not (a file system that is not mounted?). To begin a new dataset"
            " behind what was confirmed, set sink.create = true",
            configuration=True,
        )


def tell_first_positions(firsts: Sequence[First], pipeline: str) -> None:
    """Say which records are gone from the broker, and how many logs do not begin at their beginning."""
    behind = [first.span.log for first in firsts if first.progress and first.span.gap is None]
    if behind:
        log.info(
            "begins behind what the subscription has confirmed",
            pipeline=pipeline,
            logs=len(behind),
            first=str(behind[0]),
        )
    for first in firsts:
        log_ = first.span.log
        if first.span.gap is not None:
            log.warning(
                "records are gone from the broker; a gap is declared",
                pipeline=pipeline,
                topic=log_.topic,
                partition=log_.partition,
                reason=first.span.gap.reason,
            )
