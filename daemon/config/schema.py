"""The JSON Schema of a configuration file."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from .fields import DATASET_TYPES, PLAIN_TYPES
from .model import Config
from .table import Table

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors and generators."""
    schema = Config.model_json_schema()
    tables: list[type[Table]] = [*Table.__subclasses__(), Config]
    for table in tables:
        properties = (schema if issubclass(Config, table) else schema["$defs"][table.__name__])["properties"]
        for name, text in _descriptions(table):
            key = table.model_fields[name].alias or name
            if key in properties:
                properties[key]["description"] = text
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "fastwire configuration"}
    source, sink = schema["$defs"]["SourceConfig"], schema["$defs"]["SinkConfig"]
    of_job = schema["$defs"]["SparkSource"]
    for table_schema in (source, of_job):
        properties = table_schema["properties"]
        properties["group"] = {**properties["subscription"], "description": "Alias of subscription."}
    of_job["oneOf"] = [{"required": ["dataset"]}, {"required": ["url"]}]
    schema["anyOf"] = [{"required": ["pipelines"]}, {"required": ["spark"]}]
    source["required"].remove("subscription")
    source["allOf"] = [
        {"oneOf": [{"required": [key]} for key in keys]}
        for keys in (("subscription", "group"), ("topics", "topics_pattern"))
    ]
    # A plug-in has keys of its own, so only the built-in sinks can be held to ours.
    sink["additionalProperties"] = True
    sink["if"] = {"properties": {"type": {"enum": [*DATASET_TYPES, *PLAIN_TYPES]}}}
    sink["then"] = {"propertyNames": {"enum": list(sink["properties"])}}
    return schema


def _descriptions(table: type[Table]) -> Iterator[tuple[str, str]]:
    """The fields of a table with the text that stands below them in its source.

    Pydantic would read the sources at each start, which takes longer than everything else of a configuration.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as described)):
                yield name, inspect.cleandoc(described)
