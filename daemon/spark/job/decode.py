"""The decoder of a job's values, by the format and the schema in the configuration."""

from ...config import ConfigError, Problem, SparkDecode
from .schema import Decoder, SchemaError


def make_decoder(decode: SparkDecode, key: str, *, by_number: bool = False) -> Decoder | None:
    """Return the decoder for a schema file; None if values stay as they are.

    ``key`` is the path of the table in the configuration; ``by_number`` names the columns of unions as older versions
    did. Raises ConfigError.
    """
    if decode.definition is None:
        return None
    try:
        return _decoder(decode, by_number=by_number)
    except (SchemaError, OSError, UnicodeDecodeError) as exc:
        raise ConfigError([Problem(str(decode.definition), f"{key}.schema", str(exc))]) from None


def _decoder(decode: SparkDecode, *, by_number: bool) -> Decoder:
    assert decode.definition is not None
    ids = decode.ids if decode.framing == "confluent" else None
    if decode.format == "json":
        from .ddl import json_values, read_ddl

        return json_values(read_ddl(decode.definition))
    from .compiled import AvroValues, ProtobufValues

    if decode.format == "avro":
        return AvroValues(decode.definition.read_text(encoding="utf-8"), ids, by_number=by_number)
    return ProtobufValues(decode.definition.read_bytes(), decode.message or "", ids)
