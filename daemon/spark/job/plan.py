"""Plans the frame of one job, from records to the rows of a table; a stream and a trial run have the same plan."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...config import ConfigError, Problem, SparkConfig, SparkDataset, SparkOutput
from ...config.values.text import nearest
from ...dataset.description import DatasetOptions, Description
from ...dataset.origin import look_at
from ...dataset.place import bucket_of
from ...runtime.errors import DatasetMismatchError
from ..source.rows import PLACE
from .decode import make_decoder
from .files import ORDINALS
from .schema import Decoder
from .split import REASON, Column, Pieces, RowSplit
from .table import columns_of, table_options

if TYPE_CHECKING:
    from .keyed import KeyedRows  # NumPy is there where Spark is

_MADE: Sequence[Literal["date", "hour"]] = ("date", "hour")


class Plan(NamedTuple):
    """``frame`` has the rows of a batch, which ``pieces`` splits; ``table`` has the columns of the table as fields.

    ``dataset`` are the options of its dataset. ``dead`` names the columns of dead letters, and ``dead_letters`` are the
    options of their dataset. Where duplicates are dropped, pieces have the columns that ``keyed`` needs besides those
    of the table. ``settings`` is JSON with all settings that tell dead letters from rows, with the schema.
    """

    frame: Any
    pieces: Callable[[], Pieces]
    table: Sequence[Any]
    dataset: DatasetOptions
    dead: tuple[str, ...]
    dead_letters: DatasetOptions
    keyed: "KeyedRows | None"
    settings: str


def plan_job(rows: Any, name: str, job: SparkConfig) -> Plan:
    """Plan the job ``name`` over ``rows``, with deduplication where they are a stream.

    A table of an older version keeps its names for the columns of unions. Raises ConfigError, which names every unknown
    column.
    """
    plan = _planned(rows, name, job)
    if job.decode.format == "avro" and (held := _held(job.output)) is not None and not _fits(held, plan):
        older = _planned(rows, name, job, by_number=True)
        return older if _fits(held, older) else plan
    return plan


def _held(output: SparkOutput) -> Description | None:
    """Return the description of the table that there is; None also if the store is away, for which a job waits."""
    try:
        return look_at(output.path, None, bucket_of(output))
    except OSError:
        return None


def _fits(held: Description, plan: Plan) -> bool:
    try:
        held.check(plan.dataset, "")
    except DatasetMismatchError:
        return False
    return True


def _planned(rows: Any, name: str, job: SparkConfig, *, by_number: bool = False) -> Plan:
    from pyspark.sql.types import StringType, StructField

    where = f"spark.{name}"
    source = {field.name: field for field in rows.schema.fields}
    needed = {"value"} if job.decode.format != "none" else set[str]()
    if job.dedupe is not None or set(job.output.partition_by) & set(_MADE):
        needed.add("timestamp")
    if absent := needed - source.keys():
        message = f"its files have no column {', '.join(sorted(absent))}, which this job needs"
        raise ConfigError([Problem("", f"{where}.source.dataset", message)])
    decoder = make_decoder(job.decode, f"{where}.decode", by_number=by_number)
    columns = _columns(decoder, list(source), job)
    table = [_field(each, decoder, source) for each in columns]
    _check_names(where, job, [each.name for each in columns])
    dataset = table_options(name, job.output, table)
    dead = (*source, REASON)
    dead_letters = columns_of(name, [*source.values(), StructField(REASON, StringType())], typed=False)
    keyed = None
    if job.dedupe is not None and rows.isStreaming:
        from .keyed import KeyedRows

        # Together these columns tell a row from all others; the last of them is its time.
        place = (*ORDINALS, "timestamp") if isinstance(job.source, SparkDataset) else PLACE
        hidden = [Column(f"<{each}>", "input", each) for each in place if each in source or each in ORDINALS]
        columns += hidden
        keyed = KeyedRows(job.dedupe.key, tuple(each.name for each in hidden), hidden[-1].name)
    key = () if job.dedupe is None else job.dedupe.key
    split = RowSplit(decoder, columns, key, job.output.partition_by, bool(job.output.table_format))
    return Plan(rows, split.open, table, dataset, dead, dead_letters, keyed, split_of(job))


def _columns(decoder: Decoder | None, source: Sequence[str], job: SparkConfig) -> list[Column]:
    """Return the columns of the table in order."""
    if decoder is None:
        columns = [Column(each, "input", each) for each in source]
    else:
        columns = [Column(field.name, "value", field.name) for field in decoder.record]
        if job.output.metadata:
            columns += [Column(f"_{each}", "input", each) for each in PLACE if each in source]
    names = {each.name for each in columns}
    made = (each for each in _MADE if each in job.output.partition_by and each not in names)
    return columns + [Column(each, each, "timestamp") for each in made]


def _field(column: Column, decoder: Decoder | None, source: Mapping[str, Any]) -> Any:
    """Return a column of the table as a field of Spark's."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import DateType, IntegerType, StructField

    if column.origin == "value":
        assert decoder is not None
        return StructField(column.name, from_arrow_type(decoder.record.field(column.source).type))
    if column.origin == "input":
        return StructField(column.name, source[column.source].dataType)
    return StructField(column.name, DateType() if column.origin == "date" else IntegerType())


def split_of(job: SparkConfig) -> str:
    """Return the settings of ``job`` that tell dead letters from rows. Raises OSError for an unreadable schema."""
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
