"""A trial run of a job: processes some rows and writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...config import SparkConfig
from .plan import plan_job
from .source import read_rows
from .split import BAD, REASON

__all__ = ["Trial", "try_job"]

_MOST_REASONS = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """The result for ``rows`` rows; ``columns`` are those of the table as (name, type)."""

    rows: int
    dead_letters: int
    reasons: Sequence[tuple[str, int]]
    columns: Sequence[tuple[str, str]]


def try_job(session: Any, name: str, job: SparkConfig, rows: int) -> Trial:
    """Decode ``rows`` rows, in no particular order. Duplicates are not looked for.

    Raises ConfigError and DatasetError as the job itself would.
    """
    from pyspark.sql import functions as fn

    plan = plan_job(read_rows(session, name, job.source).limit(rows), name, job)
    reason = fn.col(BAD)[REASON].alias(REASON)
    counted = plan.marked.groupBy(reason).count().orderBy(fn.desc("count")).collect()
    bad = [(row[REASON], row["count"]) for row in counted if row[REASON] is not None]
    return Trial(
        rows=sum(row["count"] for row in counted),
        dead_letters=sum(count for _, count in bad),
        reasons=bad[:_MOST_REASONS],
        columns=[(field.name, field.dataType.simpleString()) for field in plan.table],
    )
