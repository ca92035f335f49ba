"""Decodes values into columns: a struct for each record, or the reason why the value cannot be decoded.

A decoder works on whole Arrow columns, in executors; only JSON is left to Spark's own parser.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...config import ConfigError, Problem, SparkDecode
from .schema import Decoder, Reader, SchemaError

__all__ = ["REASON", "RECORD", "decode_values", "decoded", "make_decoder", "read_ddl"]

RECORD, REASON = "__record", "__reason"
_CORRUPT = "__corrupt"
_CONFLUENT_BYTES = 5  # a zero byte and the id of the schema


def make_decoder(decode: SparkDecode) -> Decoder:
    """Return the decoder for a schema file. Raises SchemaError, or OSError."""
    assert decode.definition is not None
    if decode.format == "avro":
        from .avro import AvroDecoder

        return AvroDecoder(decode.definition.read_text(encoding="utf-8"))
    from .protobuf import ProtobufDecoder

    return ProtobufDecoder(decode.definition.read_bytes(), decode.message or "")


def decoded(session: Any, frame: Any, decode: SparkDecode, key: str) -> tuple[Any, list[str]]:
    """Return ``frame`` with the columns ``__record`` and ``__reason``, and the names of the fields of a record.

    The reason is null for a good row. ``key`` is the path of this table in the configuration. Raises ConfigError.
    """
    if decode.format == "none":
        from pyspark.sql import functions as fn

        return frame.withColumn(REASON, fn.lit(None).cast("string")), []
    try:
        if decode.format == "json":
            return _decoded_json(session, frame, decode)
        decoder = make_decoder(decode)
    except (SchemaError, OSError, UnicodeDecodeError) as exc:
        raise ConfigError([Problem(str(decode.definition), f"{key}.schema", str(exc))]) from None
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType(
        [
            *frame.schema.fields,
            StructField(RECORD, from_arrow_type(decoder.record)),
            StructField(REASON, StringType()),
        ]
    )
    framing = decode.ids if decode.framing == "confluent" else None
    return frame.mapInArrow(_decode_batches(decoder, framing), schema), [field.name for field in decoder.record]


def _decoded_json(session: Any, frame: Any, decode: SparkDecode) -> tuple[Any, list[str]]:
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructField, StructType

    assert decode.definition is not None
    schema = read_ddl(decode.definition)
    parsed = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    text = fn.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    frame = frame.withColumn(RECORD, fn.from_json(text, parsed, options))
    record = fn.col(RECORD)
    reason = (
        fn.when(fn.col("value").isNull(), "the value is null")
        .when(~fn.is_valid_utf8(text), "the value is not UTF-8")
        .when(record.isNull() | record[_CORRUPT].isNotNull(), "the value is not JSON of this schema")
    )
    for field in schema.fields:
        if not field.nullable:
            reason = reason.when(record[field.name].isNull(), f"{field.name} is missing or null")
    return frame.withColumn(REASON, reason), schema.fieldNames()


def read_ddl(path: Path) -> Any:
    """Read columns in Spark DDL, which may have comments (``--``) and several lines. Raises SchemaError, OSError."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    lines = path.read_text(encoding="utf-8").splitlines()
    text = " ".join(line.partition("--")[0] for line in lines).strip().rstrip(",;")
    if not text:
        raise SchemaError("holds no columns")
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as exc:
        raise SchemaError(f"is not DDL: {' '.join(str(exc).split())[:200]}") from None
    return schema


def _decode_batches(decoder: Decoder, ids: Sequence[int] | None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = decoder.compile()
        for batch in batches:
            records, reasons = decode_values(batch.column("value"), reader, decoder.record, ids)
            names = [*batch.schema.names, RECORD, REASON]
            yield pa.RecordBatch.from_arrays([*batch.columns, records, reasons], names)

    return run


def decode_values(
    values: pa.Array, reader: Reader, record: pa.StructType, ids: Sequence[int] | None = None
) -> tuple[pa.Array, pa.Array]:
    """Return the records, null for bad values, and the reasons, null for good values.

    With ``ids``, values begin with a zero byte and the id of a schema, which must be one of ``ids``.
    """
    records: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        try:
            if value is None:
                raise ValueError("the value is null")
            records.append(reader.bare(value) if ids is None else reader.framed(_unframed(value, ids)))
            reasons.append(None)
        except Exception as exc:  # any error that a library raises for a value concerns only this value
            records.append(None)
            reasons.append(_words(exc))
    try:
        return pa.array(records, record), pa.array(reasons, pa.string())
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    # A well-formed value does not fit its column: decode one by one to find it.
    for index, found in enumerate(records):
        try:
            pa.array([found], record)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as exc:
            records[index], reasons[index] = None, _words(exc)
    return pa.array(records, record), pa.array(reasons, pa.string())


def _unframed(value: bytes, ids: Sequence[int]) -> bytes:
    if len(value) < _CONFLUENT_BYTES or value[0]:
        raise ValueError("the value does not begin with a zero byte and the id of a schema")
    found = int.from_bytes(value[1:_CONFLUENT_BYTES], "big")
    if found not in ids:
        raise ValueError(f"the value is of schema {found}, not {' or '.join(map(str, ids))}")
    return value[_CONFLUENT_BYTES:]


def _words(exc: Exception) -> str:
    text = " ".join(str(exc).split())[:200]
    return text if type(exc) is ValueError and text else f"{type(exc).__name__}: {text}"
