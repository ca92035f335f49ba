"""One order in Avro and in Protobuf, for the tests of both decoders."""

import io
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["RETAIL", "WHOLESALE"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "again", "type": ["null", "Kind"]}],
                },
            },
        },
    ],
}
CONFLUENT = b"\0\0\0\0\x07"


def avro(number: int, **changes: Any) -> bytes:
    """Order ``number``, framed as schema 7."""
    record = {
        "order_id": number,
        "kind": "RETAIL",
        "note": None,
        "paid": 1_767_323_045_123_456,
        "total": "12.50",
        "tags": {"n": number},
        "lines": [{"sku": "a", "again": None}, {"sku": "b", "again": "WHOLESALE"}],
    }
    from decimal import Decimal

    record["total"] = Decimal("12.50")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record | changes)
    return CONFLUENT + stream.getvalue()


_KINDS = descriptor_pb2.FieldDescriptorProto


def _field(name: str, number: int, kind: int, type_name: str = "", **more: Any) -> Any:
    many = more.pop("many", False)
    label = _KINDS.LABEL_REPEATED if many else _KINDS.LABEL_OPTIONAL
    if type_name:
        more["type_name"] = type_name
    return _KINDS(name=name, number=number, type=kind, label=label, **more)  # type: ignore[arg-type]


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="RETAIL", number=0)
    kind.value.add(name="WHOLESALE", number=1)
    line = file.message_type.add(name="Line")
    line.field.append(_field("sku", 1, _KINDS.TYPE_STRING))
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.field.extend([_field("key", 1, _KINDS.TYPE_STRING), _field("value", 2, _KINDS.TYPE_INT32)])
    entry.options.map_entry = True
    order.oneof_decl.add(name="_note")
    order.field.extend(
        [
            _field("order_id", 1, _KINDS.TYPE_INT64),
            _field("kind", 2, _KINDS.TYPE_ENUM, ".shop.Kind"),
            _field("note", 3, _KINDS.TYPE_STRING, proto3_optional=True, oneof_index=0),
            _field("lines", 4, _KINDS.TYPE_MESSAGE, ".shop.Line", many=True),
            _field("tags", 5, _KINDS.TYPE_MESSAGE, ".shop.Order.TagsEntry", many=True),
            _field("serial", 6, _KINDS.TYPE_UINT64),
            _field("raw", 7, _KINDS.TYPE_BYTES),
            _field("paid", 8, _KINDS.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
            _field("rate", 9, _KINDS.TYPE_MESSAGE, ".google.protobuf.DoubleValue"),
            _field("first", 10, _KINDS.TYPE_MESSAGE, ".shop.Line"),
        ]
    )
    for name in ("First", "Second"):  # behind the hidden message of the map
        order.nested_type.add(name=name).field.append(_field("order_id", 1, _KINDS.TYPE_INT64))
    node = file.message_type.add(name="Node")
    node.field.append(_field("next", 1, _KINDS.TYPE_MESSAGE, ".shop.Node"))
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    return file


def descriptor_set(*, imports: bool = True) -> bytes:
    """Return the descriptors that protoc writes."""
    from google.protobuf import timestamp_pb2, wrappers_pb2

    files = descriptor_pb2.FileDescriptorSet()
    if imports:
        for module in (timestamp_pb2, wrappers_pb2):
            module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(_file())
    return files.SerializeToString()


def protobuf(number: int, **changes: Any) -> bytes:
    """Order ``number``."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    values = {"order_id": number, "lines": [{"sku": "a"}, {"sku": "b"}], "tags": {"n": number}, **changes}
    return order(**values).SerializeToString()
