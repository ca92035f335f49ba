"""Checks of a configuration that a running daemon is to take over, besides those of the command ``check``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.systems import grammar_named

from ..config import Config, PipelineConfig
from ..config.neighbours import one_cursor

CHECKS_S = 60.0
"""The longest time of all checks: stores and certificates may be far away."""

Refusals = Callable[[Config, Sequence[str]], list[str]]
"""Returns why pipelines of a configuration must not start, as sentences for the user. It may block."""


def has_landed(coverage: Coverage) -> bool:
    """Return True if records are known to have landed, in this run or before."""
    return any(coverage.intervals(log) for log in coverage.logs())


def lost_datasets(config: Config, names: Sequence[str], running: Mapping[str, PipelineConfig]) -> list[str]:
    """Return why pipelines must not begin a new dataset: the progress of their group belongs to another one.

    ``running`` are the pipelines that have landed records. A start of the process would refuse the same with the
    broker's help, when the pipelines are stopped already.
    """
    found = []
    for name in names:
        pipeline = config.pipelines[name]
        topics = [(other, one_cursor(each.source, pipeline.source)) for other, each in running.items()]
        begun = next((f"{topic} by pipeline {other}" for other, topic in topics if topic), "")
        if begun and not pipeline.sink.create and not _exists(pipeline):
            group = grammar_named(pipeline.source.system).group_word
            found.append(
                f"pipelines.{name}.sink.path: there is no dataset at {pipeline.sink.path}, but the {group} has "
                f"progress on {begun}. To begin a new dataset after those records, set sink.create = true"
            )
    return found


def _exists(pipeline: PipelineConfig) -> bool:
    """Return False only if there surely is no dataset where the pipeline is to land."""
    from ..dataset.origin import look_at  # loads pyarrow
    from ..dataset.place import bucket_of

    sink = pipeline.sink
    if not sink.has_log or sink.path is None or sink.by_topic:
        return True  # of many datasets, each that is lost is refused by itself
    if isinstance(sink.path, Path) and not sink.path.exists():
        return False
    try:
        return look_at(sink.path, None, bucket_of(sink)) is not None
    except (FastwireError, OSError):
        return True  # another check tells, or a later try
