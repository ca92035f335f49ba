"""Schemas of JSON values: the types that JSON has no single form of."""

import json
from typing import Any

import pytest

from fastwire.decode.json.schema import compile_json
from fastwire.decode.program import SchemaError


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (["null", "int", "string"], "a: a union of several types is not supported in JSON"),
        (
            {"type": "array", "items": {"type": "fixed", "name": "F", "size": 4}},
            "a[]: a fixed is not supported in JSON",
        ),
        ("strin", 'a: "strin" is not a type'),
    ],
)
def test_types_that_are_refused(kind: Any, message: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    with pytest.raises(SchemaError, match="^" + message.replace("[", r"\[")):
        compile_json(json.dumps(schema))
