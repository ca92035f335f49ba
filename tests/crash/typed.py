"""Formats of values for a campaign: a record of one field, whose schema is another one at each start of a daemon."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto

from tests.support.avro import encode
from tests.support.protobuf import FileProto, described, field

Row = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """One format: schema number n has the field of the values, and a field ``c<n>`` without values."""

    name: str
    encode: Callable[[bytes], bytes]
    """Encodes a value, for the schema of any number."""
    schema: Callable[[int], bytes]
    extension: str
    inferred: bool = False
    """True if the columns come from the values, which have other fields one after the other."""

    def decode(self, folder: Path, number: int) -> Row:
        """Return the table ``decode`` of a daemon, with a schema that is written into ``folder``."""
        if self.inferred:
            return {"format": self.name, "schema": "infer", "evolve": "add"}
        file = folder / f"{number}.{self.extension}"
        file.write_bytes(self.schema(number))
        return {"format": self.name, "schema": str(file), "evolve": "add"}


def _avro(number: int) -> bytes:
    fields = [{"name": "value", "type": "bytes"}, {"name": f"c{number}", "type": "null"}]
    return json.dumps({"type": "record", "name": "T", "fields": fields}).encode()


def _json(number: int) -> bytes:
    fields = [{"name": "value", "type": "string"}, {"name": f"c{number}", "type": ["null", "long"]}]
    return json.dumps({"type": "record", "name": "T", "fields": fields}).encode()


def _protobuf(number: int) -> bytes:
    fields = [field("value", 1, "bytes"), field(f"c{number}", 2 + number, "int64", proto3_optional=True, oneof_index=0)]
    made = DescriptorProto(name="T", field=fields)
    made.oneof_decl.add(name="_c")
    return described(FileProto(name="t.proto", syntax="proto3", message_type=[made]))


def _length_first(value: bytes) -> bytes:
    return b"\x0a" + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _growing(value: bytes) -> bytes:
    """Encode a value with a field that few others have, and one within a struct."""
    number = int(value[:9])
    return json.dumps({"value": value.decode(), f"c{number % 4}": number, "deep": {f"d{number % 5}": [1]}}).encode()


FORMATS = {
    "avro": Format("avro", lambda value: encode("bytes", value), _avro, "avsc"),
    "json": Format("json", lambda value: json.dumps({"value": value.decode()}).encode(), _json, "avsc"),
    "inferred": Format("json", _growing, _json, "avsc", inferred=True),
    "protobuf": Format("protobuf", _length_first, _protobuf, "desc"),
}
