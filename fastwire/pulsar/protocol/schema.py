"""Topic schemas: requests for them, and their contents (spec: pulsar 23)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastwire.errors import ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb

# Names by type number.
_KINDS = (
    "BYTES", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE",
    "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a topic's schema.

    The contents of ``definition`` depend on ``kind``: an Avro schema in JSON for AVRO, JSON and PROTOBUF, JSON with a
    descriptor for PROTOBUF_NATIVE, two definitions for KEY_VALUE, empty for the plain types. ``version`` is the value
    of the records' column schemaVersion.
    """

    version: bytes
    kind: str
    name: str
    definition: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


def ask_schema(topic: str, version: bytes = b"") -> Callable[[int], pb.BaseCommand]:
    """Build GET_SCHEMA of a version, by default the newest one, for ``Connection.request``."""

    def command(request_id: int) -> pb.BaseCommand:
        ask = pb.CommandGetSchema(request_id=request_id, topic=topic)
        if version:
            ask.schema_version = version
        return pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA, getSchema=ask)

    return command


def schema_of(answer: pb.CommandGetSchemaResponse, asked: bytes = b"") -> Schema:
    """Return the schema of a successful response; ``asked`` is its version if the broker does not repeat it."""
    found = answer.schema
    return Schema(
        version=answer.schema_version or asked,
        kind=_KINDS[found.type] if found.type < len(_KINDS) else f"TYPE_{found.type}",
        name=found.name,
        definition=found.schema_data,
        properties={each.key: each.value for each in found.properties},
    )


def wire_schema(kind: str, name: str, definition: bytes = b"") -> pb.Schema:
    """Return the schema that a consumer or a producer declares to the broker; ``kind`` is a kind of ``Schema``.

    Raises ValueError for an unknown kind.
    """
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a kind of schema: there are {', '.join(_KINDS)}")
    return pb.Schema(name=name, schema_data=definition, type=pb.Schema.Type.keys()[_KINDS.index(kind)])


def split_key_value(definition: bytes) -> tuple[bytes, bytes]:
    """Split the definition of a KeyValue schema into those of key and value. Raises ProtocolError if its lengths are
    wrong.
    """
    parts = []
    at = 0
    for what in ("key", "value"):
        size = int.from_bytes(definition[at : at + 4], "big", signed=True)
        left = len(definition) - at - 4
        if left < 0 or size > left:
            detail = f"needs {max(size, 4)} bytes, {max(left, 0)} are left"
            raise ProtocolError(f"schema of the {what}", at, detail=detail)
        size = max(size, 0)  # -1 means an absent part
        parts.append(definition[at + 4 : at + 4 + size])
        at += 4 + size
    return parts[0], parts[1]


def version_number(version: bytes) -> str:
    """Return a version for display: decimal for one of the built-in registry (8 bytes), otherwise hexadecimal."""
    return str(int.from_bytes(version, "big")) if len(version) == 8 else "0x" + version.hex()
