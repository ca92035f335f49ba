"""Columns in Spark DDL as a program of the JSON decoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from fastwire.decode.program import MOST_COLUMNS, MOST_DEPTH, Node, Step, flatten

from .compiled import JsonValues
from .schema import SchemaError

# By Spark's name: the keys of a step, and the Arrow type of Spark's column.
_TYPES: Mapping[str, tuple[Mapping[str, Any], pa.DataType]] = {
    "boolean": ({"shape": "bool", "operation": "bool", "arrow": "b"}, pa.bool_()),
    "tinyint": ({"shape": "int32", "operation": "int", "arrow": "i", "low": -128, "high": 127}, pa.int8()),
    "smallint": ({"shape": "int32", "operation": "int", "arrow": "i", "low": -32768, "high": 32767}, pa.int16()),
    "int": ({"shape": "int32", "operation": "int", "arrow": "i"}, pa.int32()),
    "bigint": ({"shape": "int64", "operation": "int", "arrow": "l"}, pa.int64()),
    "float": ({"shape": "float", "operation": "float", "arrow": "f"}, pa.float32()),
    "double": ({"shape": "double", "operation": "double", "arrow": "g"}, pa.float64()),
    "string": ({"shape": "text", "operation": "text", "arrow": "u"}, pa.string()),
    "binary": ({"shape": "bytes", "operation": "bytes", "arrow": "z"}, pa.binary()),
    "date": ({"shape": "int32", "operation": "int", "arrow": "tdD"}, pa.date32()),
    "timestamp": ({"shape": "int64", "operation": "int", "arrow": "tsu:UTC"}, pa.timestamp("us", "UTC")),
    "timestamp_ntz": ({"shape": "int64", "operation": "int", "arrow": "tsu:"}, pa.timestamp("us")),
}


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


def json_values(schema: Any) -> JsonValues:
    """Return the decoder of JSON objects into the columns of a StructType of Spark's.

    A NOT NULL column must be in each object; as in ``from_json``, NOT NULL means nothing within a column. Raises
    SchemaError for a type that JSON is not decoded into.
    """
    top, record = _struct(schema, "", "", 0)
    program = flatten(top)
    if len(program) > MOST_COLUMNS:
        raise SchemaError(f"has more than {MOST_COLUMNS} columns over all levels")
    return JsonValues(program, record)


def _struct(kind: Any, name: str, path: str, depth: int) -> tuple[Node, pa.StructType]:
    nodes: list[Node] = []
    fields: list[pa.Field] = []
    for field in kind.fields:
        if field.name in (each.name for each in fields):
            raise SchemaError(f'has two columns "{field.name}"')
        nullable = field.nullable or depth > 0
        where = f"{path}.{field.name}" if path else field.name
        node, arrow = _column(field.dataType, field.name, where, depth + 1, nullable=nullable)
        nodes.append(node)
        fields.append(pa.field(field.name, arrow))
    step = Step(name=name, path=path, shape="struct", operation="record", arrow="+s", nullable=depth > 0)
    return Node(step, nodes), pa.struct(fields)


def _column(kind: Any, name: str, path: str, depth: int, *, nullable: bool = True) -> tuple[Node, pa.DataType]:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    if depth > MOST_DEPTH:
        raise SchemaError(f"{path} nests deeper than {MOST_DEPTH} levels")
    keys: Mapping[str, Any]
    nodes: list[Node] = []
    if isinstance(kind, StructType):
        node, arrow = _struct(kind, name, path, depth)
        keys, nodes = {"shape": "struct", "operation": "record", "arrow": "+s"}, node.children
    elif isinstance(kind, ArrayType):
        node, item = _column(kind.elementType, "item", f"{path}[]", depth + 1)
        keys, nodes, arrow = {"shape": "list", "operation": "array", "arrow": "+l"}, [node], pa.list_(item)
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        node, item = _column(kind.valueType, "value", f"{path}{{}}", depth + 2)
        key = Node(Step(name="key", path=f"{path}{{}}", **_TYPES["string"][0]))
        entry = Step(name="entries", path=path, shape="struct", operation="record", arrow="+s")
        keys, nodes = {"shape": "list", "operation": "array", "arrow": "+m"}, [Node(entry, [key, node])]
        arrow = pa.map_(pa.string(), item)
    elif isinstance(kind, DecimalType):
        digits, scale = kind.precision, kind.scale
        keys = {"shape": "decimal", "operation": "decimal", "arrow": f"d:{digits},{scale}", "digits": digits}
        arrow = pa.decimal128(digits, scale)
    elif kind.simpleString() in _TYPES:
        keys, arrow = _TYPES[kind.simpleString()]
    else:
        raise SchemaError(f"{path} is {kind.simpleString()}, a type into which JSON is not decoded")
    return Node(Step(name=name, path=path, nullable=nullable, **keys), nodes), arrow
