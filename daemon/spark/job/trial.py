"""A trial run of a job: processes some rows and writes nothing."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...config import SparkConfig
from .plan import plan_job
from .source import read_rows
from .split import REASONS_DDL, count_reasons

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
    plan = plan_job(read_rows(session, name, job.source).limit(rows), name, job)
    counted = Counter[str | None]()
    for reason, count in plan.frame.mapInArrow(count_reasons(plan.pieces), REASONS_DDL).collect():
        counted[reason] += count
    dead = [(reason, count) for reason, count in counted.most_common() if reason is not None]
    return Trial(
        rows=counted.total(),
        dead_letters=sum(count for _, count in dead),
        reasons=dead[:_MOST_REASONS],
        columns=[(field.name, field.dataType.simpleString()) for field in plan.table],
    )
