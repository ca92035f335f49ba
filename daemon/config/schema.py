"""The JSON Schema of a configuration file."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fastwire.systems import SYSTEMS

from .brokers.source import source_model
from .brokers.sparksource import brokers_model
from .model import Config
from .table import Table
from .values.fields import DATABASE_TYPES, DATASET_TYPES, PLAIN_TYPES


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, for editors and generators."""
    schema = Config.model_json_schema()
    definitions = schema["$defs"]
    for model, place in ((source_model, "PipelineConfig"), (brokers_model, "SparkConfig")):
        own = [model(system).model_json_schema(ref_template="#/$defs/{model}") for system in SYSTEMS]
        references = [{"$ref": f"#/$defs/{one['title']}"} for one in own]
        for one in own:
            definitions |= one.pop("$defs", {}) | {one["title"]: one}
        if place == "SparkConfig":
            references.insert(0, {"$ref": "#/$defs/SparkDataset"})
        definitions[place]["properties"]["source"] = {"anyOf": references}
    del definitions["SourceConfig"], definitions["SparkBrokers"]
    tables: list[type[Table]] = [Config, *(table for table in _tables(Table) if table.__name__ in definitions)]
    for table in tables:
        properties = (schema if table is Config else definitions[table.__name__])["properties"]
        for name, text in (pair for base in reversed(table.__mro__) for pair in _descriptions(base)):
            key = table.model_fields[name].alias or name
            if key in properties:
                properties[key]["description"] = text
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "fastwire configuration"}
    sink = schema["$defs"]["SinkConfig"]
    schema["anyOf"] = [{"required": ["pipelines"]}, {"required": ["spark"]}]
    for model in (source_model, brokers_model):
        for aliases, source in ((model(system).aliases, definitions[model(system).__name__]) for system in SYSTEMS):
            properties = source["properties"]
            either = [("topics", "topics_pattern")]
            for alias, key in aliases.items():
                properties[alias] = {**properties[key], "description": f"Alias of {key}."}
                if key in source["required"]:
                    source["required"].remove(key)
                    either.insert(0, (key, alias))
            source["allOf"] = [{"oneOf": [{"required": [key]} for key in keys]} for keys in either]
    # A plug-in has keys of its own, so only the built-in sinks can be held to ours.
    sink["additionalProperties"] = True
    sink["if"] = {"properties": {"type": {"enum": [*DATASET_TYPES, *DATABASE_TYPES, *PLAIN_TYPES]}}}
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
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as described)),
            ) if name in table.model_fields:
                yield name, inspect.cleandoc(described)
