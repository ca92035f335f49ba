"""A trial run of a job: processes some rows and writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...config import SparkConfig
from .plan import plan_job
from .source import read_rows
from .task import BAD

__all__ = ["Trial", "try_job"]

_MOST_REASONS = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """The result for ``rows`` rows; ``columns`` are those of the table as (name, type)."""

    rows: int
    bad: int
    reasons: Sequence[tuple[str, int]]
    columns: Sequence[tuple[str, str]]


def try_job(session: Any, name: str, job: SparkConfig, rows: int) -> Trial:
    """Decode ``rows`` rows, in no particular order. Duplicates are not looked for.

    Raises ConfigError and DatasetError as the job itself would.
    """
    from pyspark.sql import functions as fn

    plan = plan_job(session, read_rows(session, name, job.source).limit(rows), name, job)
    reason = fn.col(BAD)["reason"].alias("reason")
    counted = plan.frame.groupBy(reason).count().orderBy(fn.desc("count")).collect()
    bad = [(row["reason"], row["count"]) for row in counted if row["reason"] is not None]
    fields = [field for field in plan.frame.schema.fields if field.name != BAD]
    return Trial(
        rows=sum(row["count"] for row in counted),
        bad=sum(count for _, count in bad),
        reasons=bad[:_MOST_REASONS],
        columns=[(field.name, field.dataType.simpleString()) for field in fields],
    )
