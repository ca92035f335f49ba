"""Plans the frame of one job, from records to the rows of a table; a stream and a trial run have the same plan."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...config import ConfigError, Problem, SparkConfig
from ...config.text import nearest
from ..source.rows import PLACE
from .decode import REASON, RECORD, decoded
from .task import BAD

__all__ = ["Plan", "plan_job", "split_of"]

_TIME, _SELF = "__time", "__self"
_MADE = ("date", "hour")


class Plan(NamedTuple):
    """``frame`` has the columns of the table and ``__bad``; ``bad`` names the quarantined columns.

    ``split`` is JSON with all settings that decide which rows are bad, including the content of the schema.
    """

    frame: Any
    bad: tuple[str, ...]
    stateful: bool
    split: str


def plan_job(session: Any, rows: Any, name: str, job: SparkConfig) -> Plan:
    """Plan the job ``name`` over ``rows``, with deduplication where they are a stream.

    Raises ConfigError, which names every unknown column.
    """
    key = f"spark.{name}"
    source = list(rows.columns)
    needed = {"value"} if job.decode.format != "none" else set[str]()
    if job.dedupe is not None or set(job.output.partition_by) & set(_MADE):
        needed.add("timestamp")
    if absent := needed - set(source):
        message = f"its files have no column {', '.join(sorted(absent))}, which this job needs"
        raise ConfigError([Problem("", f"{key}.source.dataset", message)])
    from pyspark.sql import functions as fn

    frame, fields = decoded(session, rows, job.decode, f"{key}.decode")
    columns = _columns(frame, source, fields, job)
    _check_names(key, job, list(columns))
    _check_levels(key, job, dict(frame.select(*(column.alias(each) for each, column in columns.items())).dtypes))
    reason = fn.col(REASON)
    if job.dedupe is not None:
        for field in job.dedupe.key:
            reason = fn.coalesce(reason, fn.when(columns[field].isNull(), f"{field} is null and part of the key"))
    frame = frame.withColumn(REASON, reason)
    reason = fn.col(REASON)
    bad = (*source, "reason")
    spoilt = fn.when(reason.isNotNull(), fn.struct(*(fn.col(each) for each in source), reason.alias("reason")))
    selected = [column.alias(each) for each, column in columns.items()]
    if job.dedupe is None:
        return Plan(frame.select(*selected, spoilt.alias(BAD)), bad, False, split_of(job))
    # Bad rows pass: each has a key of its own and no time, so none is a duplicate or late.
    place = fn.concat_ws("/", *(fn.col(each).cast("string") for each in PLACE if each in source))
    frame = frame.select(
        *selected,
        spoilt.alias(BAD),
        fn.when(reason.isNull(), fn.col("timestamp")).alias(_TIME),
        fn.when(reason.isNotNull(), place).alias(_SELF),
    )
    if frame.isStreaming:
        frame = frame.withWatermark(_TIME, f"{round(job.dedupe.watermark * 1000)} milliseconds")
        frame = frame.dropDuplicatesWithinWatermark([*job.dedupe.key, _SELF])
    return Plan(frame.drop(_TIME, _SELF), bad, frame.isStreaming, split_of(job))


def split_of(job: SparkConfig) -> str:
    """Return the settings of ``job`` that decide which rows are bad. Raises OSError for an unreadable schema."""
    decode = job.decode
    settings: dict[str, Any] = {
        "format": decode.format,
        "message": decode.message,
        "framing": decode.framing,
        "ids": decode.ids,
        "key": job.dedupe.key if job.dedupe is not None else (),
    }
    if decode.definition is not None:
        content = decode.definition.read_bytes()
        if decode.format == "protobuf":
            settings["schema_base64"] = b64encode(content).decode()
        else:
            settings["schema"] = content.decode("utf-8", "replace")
    return json.dumps(settings, indent=1, sort_keys=True)


def _columns(frame: Any, source: Sequence[str], fields: Sequence[str], job: SparkConfig) -> dict[str, Any]:
    """Return the columns of the table by name, in order."""
    from pyspark.sql import functions as fn

    if job.decode.format == "none":
        columns = {each: fn.col(each) for each in source}
    else:
        columns = {each: fn.col(RECORD)[each] for each in fields}
        if job.output.metadata:
            columns |= {f"_{each}": fn.col(each) for each in PLACE if each in source}
    made = {"date": lambda time: fn.to_date(time), "hour": lambda time: fn.hour(time)}
    for each in job.output.partition_by:
        if each in made and each not in columns:
            columns[each] = made[each](fn.col("timestamp"))
    return columns


def _check_names(key: str, job: SparkConfig, columns: Sequence[str]) -> None:
    problems = []
    named = [(f"{key}.output.partition_by[{i}]", each) for i, each in enumerate(job.output.partition_by)]
    named += [(f"{key}.dedupe.key[{i}]", each) for i, each in enumerate(job.dedupe.key if job.dedupe else ())]
    for place, each in named:
        if each not in columns:
            hint = nearest(each, columns) or f": there are {', '.join(columns)}"
            problems.append(Problem("", place, f'there is no column "{each}"{hint}'))
    folded: dict[str, str] = {}
    for each in columns:
        other = folded.setdefault(each.lower(), each)
        if other != each:
            problems.append(
                Problem("", f"{key}.decode.schema", f'has "{other}" and "{each}", which Spark does not distinguish')
            )
    if set(columns) <= set(job.output.partition_by):
        problems.append(Problem("", f"{key}.output.partition_by", "has every column: no column is left for the files"))
    if problems:
        raise ConfigError(problems)


def _check_levels(key: str, job: SparkConfig, types: Mapping[str, str]) -> None:
    problems = [
        Problem("", f"{key}.output.partition_by[{i}]", f'"{each}" is {types[each]}, which cannot be a folder name')
        for i, each in enumerate(job.output.partition_by)
        if types[each] == "binary" or "<" in types[each]
    ]
    if problems:
        raise ConfigError(problems)
