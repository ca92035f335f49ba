"""The datasets of a pipeline with one for each topic: totals, those with problems, and the first of the others."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from fastwire.errors import FastwireError

from ...config import ConfigError, PipelineConfig
from ...config.sinks.topicplaces import config_of_topic, dataset_name, dataset_names
from ...dataset.place import bucket_of
from ...dataset.roots import Standing, standing_of
from ...runtime.amounts import counted
from ...runtime.errors import NoRecordYet
from ...sinks.registry import dataset_options, value_decoder
from ...systems.registry import topic_schemas
from .checks import CheckResult, dataset_checks

MOST_SHOWN = 20
"""Topics with problems, and others, that are told of those of a pipeline."""
MOST_COLUMNS = 8
OF_FIRST = "the fields of its first records"
_AT_ONCE = 16  # datasets that are looked at in one time: most of it is waiting


def datasets_of_topics(
    name: str, pipeline: PipelineConfig, topics: Sequence[tuple[str, int]], *, every: bool = False
) -> list[CheckResult]:
    """Report the dataset of topics with its columns, and what is wrong with it: the first, or with ``every`` all.

    ``topics`` have their numbers of partitions. Reads the datasets that exist; writes nothing.
    """
    alike = dataset_names([topic for topic, _ in topics], pipeline.sink.names)
    owners = {topic: _owner(pipeline, its) for its in alike.values() if len(its) > 1 for topic in its}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda each: _look(name, pipeline, each[0], owners.get(each[0], each[0])), topics))
    sick, sound = [each for each in found if not each.ok], [each for each in found if each.ok]
    partitions = counted(sum(count or 1 for _, count in topics), "partition")
    total = f"{counted(len(topics), 'topic')} with {partitions}: {len(sound):,} can land, {len(sick):,} cannot"
    most = None if every else MOST_SHOWN
    results = [CheckResult(name, "datasets", True, total), *islice(sick, most)]
    if most and len(sick) > most:
        results.append(CheckResult(name, "dataset", False, f"and {len(sick) - most:,} more: --all tells them"))
    results += islice(sound, most)
    if most and len(sound) > most:
        results.append(CheckResult(name, "dataset", True, f"and {len(sound) - most:,} more: --all tells them"))
    return results


def _owner(pipeline: PipelineConfig, topics: Sequence[str]) -> str:
    """Return which of the topics whose names are alike lands, as a run decides it (``Places.check``)."""
    for topic in topics:
        there = standing_of(pipeline.sink, dataset_name(topic, pipeline.sink.names))
        if there is not None and topic in {log.topic for log in there.landed.coverage.logs()}:
            return topic
    return min(topics)


def _look(name: str, pipeline: PipelineConfig, topic: str, owner: str) -> CheckResult:
    """Report the dataset of one topic; that of another ``owner`` may have its name."""
    said = topic
    try:
        own = config_of_topic(pipeline, topic)
        said = f"{topic} lands in {own.sink.path}" + ("" if own.sink.table is None else f", table {own.sink.table}")
        if owner != topic:
            why = f"for some stores and catalogs this is also the name of {owner}, which lands: set sink.names"
            return CheckResult(name, "dataset", False, f"{said}: {why}", True)
        options = dataset_options(own)
        assert own.sink.path is not None, "it is that of a topic"
        found = dataset_checks(name, own.sink.path, own, bucket_of(own.sink))
        columns = _columns_found(own)
    except ConfigError as exc:
        return CheckResult(name, "dataset", False, f"{said}: {'; '.join(map(str, exc.problems))}", True)
    except FastwireError as exc:
        return CheckResult(name, "dataset", False, f"{said}: {exc}")
    detail = "; ".join(each.detail for each in found) or "it is new"
    if not all(each.ok for each in found):
        for_good = any(each.configuration for each in found)
        return CheckResult(name, "dataset", False, f"{said}: {detail}", for_good)
    types = {column.name: f"{column}" for column in options.types}
    columns = columns or [types.get(column, column) for column in options.columns]
    if own.decode is not None and own.decode.inferred and not (types or own.decode.registered):
        there = standing_of(pipeline.sink, dataset_name(topic, pipeline.sink.names))
        columns = [OF_FIRST, *columns] if there is None else _columns_in(there)
    return CheckResult(name, "dataset", True, f"{said}: {detail}; columns {_shortened(columns)}")


def _columns_in(there: Standing) -> list[str]:
    """Return the columns of a dataset that exists, as text."""
    assert there.description is not None, "it could be read"
    types = {column.name: f"{column}" for column in there.landed.types or there.description.types}
    return [types.pop(column, column) for column in there.description.columns] + list(types.values())


def registered_columns(name: str, pipeline: PipelineConfig) -> list[CheckResult]:
    """Report the columns that a registry has for a pipeline with one dataset; nothing if it has a schema file."""
    try:
        columns = _columns_found(pipeline)
    except FastwireError as exc:
        return [CheckResult(name, "decode", False, str(exc))]
    return [CheckResult(name, "decode", True, f"columns {_shortened(columns)}")] if columns else []


def _columns_found(pipeline: PipelineConfig) -> list[str]:
    """Return the columns that a registry has for the values of a pipeline, and those of the records, as text.

    [] if it takes its columns from elsewhere. Raises ConfigError, and FastwireError if they are not known.
    """
    if pipeline.decode is None or not pipeline.decode.registered:
        return []
    from ...pipeline.firstcolumns import RegisteredColumns  # loads pyarrow
    from ...sinks.valuedecoder import ValueDecoder

    decoder = value_decoder(pipeline, topics=topic_schemas(pipeline))
    assert isinstance(decoder, ValueDecoder), "a transform needs a schema file"
    try:
        RegisteredColumns(pipeline)(decoder, threading.Event())
    except NoRecordYet:
        return [OF_FIRST]
    types = {column.name: f"{column}" for column in decoder.types}
    return [types.get(column, column) for column in decoder.columns]


def _shortened(columns: Sequence[str]) -> str:
    """Return the first columns, and how many others there are."""
    more = [f"{len(columns) - MOST_COLUMNS:,} more"] if len(columns) > MOST_COLUMNS else []
    return ", ".join([*columns[:MOST_COLUMNS], *more])
