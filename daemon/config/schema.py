"""The JSON Schema of a configuration file."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fastwire.systems import SYSTEMS

from .connection import auth_model
from .fields import DATASET_TYPES, PLAIN_TYPES
from .model import Config
from .source import source_model
from .table import Table

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors and generators."""
    schema = Config.model_json_schema()
    definitions = schema["$defs"]
    references: dict[type[Table], dict[str, str]] = {}
    for system in SYSTEMS:
        for model in (source_model(system), auth_model(system)):
            own = model.model_json_schema(ref_template="#/$defs/{model}")
            definitions |= own.pop("$defs", {}) | {model.__name__: own}
            references[model] = {"$ref": f"#/$defs/{model.__name__}"}
    of_source, of_auth = ([references[of(name)] for name in SYSTEMS] for of in (source_model, auth_model))
    definitions["PipelineConfig"]["properties"]["source"] = {"anyOf": of_source}
    definitions["SparkSource"]["properties"]["auth"] = {"anyOf": of_auth}
    del definitions["SourceConfig"]
    tables: list[type[Table]] = [Config, *(table for table in _tables(Table) if table.__name__ in definitions)]
    for table in tables:
        properties = (schema if table is Config else definitions[table.__name__])["properties"]
        for name, text in (pair for base in reversed(table.__mro__) for pair in _descriptions(base)):
            key = table.model_fields[name].alias or name
            if key in properties:
                properties[key]["description"] = text
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "fastwire configuration"}
    sources = [schema["$defs"][source_model(system).__name__] for system in SYSTEMS]
    sink, of_job = schema["$defs"]["SinkConfig"], schema["$defs"]["SparkSource"]
    for table_schema in (*sources, of_job):
        properties = table_schema["properties"]
        properties["group"] = {**properties["subscription"], "description": "Alias of subscription."}
    of_job["oneOf"] = [{"required": ["dataset"]}, {"required": ["url"]}]
    schema["anyOf"] = [{"required": ["pipelines"]}, {"required": ["spark"]}]
    for source in sources:
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


def _tables(table: type[Table]) -> Iterator[type[Table]]:
    for each in table.__subclasses__():
        yield each
        yield from _tables(each)


def _descriptions(table: type) -> Iterator[tuple[str, str]]:
    """Yield the fields of a table with their docstrings in its source.

    Pydantic would read the sources at each start, which takes longer than the rest of the configuration.
    """
    if not issubclass(table, Table):
        return
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as described)):
                yield name, inspect.cleandoc(described)
