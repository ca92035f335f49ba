"""Write docs/configuration.md: every key of a configuration file, from the models that check it.

python -m docs.configuration
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from fastwire.systems import SYSTEMS, grammars
from fastwire_daemon.config import json_schema
from fastwire_daemon.config.brokers.access import AuthConfig, OAuth2Config, TlsConfig
from fastwire_daemon.config.brokers.connection import connection_model
from fastwire_daemon.config.brokers.source import SourceConfig, source_model
from fastwire_daemon.config.brokers.sparksource import SparkBrokers, SparkDataset, brokers_model
from fastwire_daemon.config.decode import DecodeConfig, KeysConfig, RegistryConfig
from fastwire_daemon.config.model import DaemonConfig, PipelineConfig, RollConfig, SinkConfig
from fastwire_daemon.config.sinks.catalog import CatalogConfig
from fastwire_daemon.config.sinks.store import StoreConfig
from fastwire_daemon.config.spark import SparkConfig, SparkDecode, SparkDedupe, SparkOutput
from fastwire_daemon.config.table import Table, table_in
from fastwire_daemon.config.values.fields import Start
from fastwire_daemon.config.values.text import format_duration, format_size

PAGE = Path(__file__).with_suffix(".md")
Schema = Mapping[str, Any]

TITLES: dict[type[Table], str] = {
    of(grammar.name): grammar.title for grammar in grammars() for of in (source_model, brokers_model)
}
AUTH_MODELS: dict[type[Table], str] = {}
for grammar in grammars():
    login = connection_model(grammar.name).model_fields.get("auth")
    if login is not None and (auth := table_in(login.annotation)) not in (None, AuthConfig):
        AUTH_MODELS[auth] = grammar.title
# The tables of single systems.
OWN_TABLES: dict[type[Table], str] = {
    model: key
    for grammar in grammars()
    for key, field in source_model(grammar.name).model_fields.items()
    if (model := table_in(field.annotation)) is not None and key not in ("auth", "tls")
}
TABLES: tuple[tuple[str, type[Table]], ...] = (
    ("daemon", DaemonConfig),
    ("pipelines.NAME", PipelineConfig),
    ("pipelines.NAME.source", SourceConfig),
    *(("pipelines.NAME.source", source_model(grammar.name)) for grammar in grammars()),
    ("pipelines.NAME.source.auth", AuthConfig),
    *(("pipelines.NAME.source.auth", model) for model in AUTH_MODELS),
    ("pipelines.NAME.source.auth.oauth2", OAuth2Config),
    ("pipelines.NAME.source.tls", TlsConfig),
    *((f"pipelines.NAME.source.{key}", model) for model, key in OWN_TABLES.items()),
    ("pipelines.NAME.decode", DecodeConfig),
    ("pipelines.NAME.decode.keys", KeysConfig),
    ("pipelines.NAME.decode.registry", RegistryConfig),
    ("pipelines.NAME.sink", SinkConfig),
    ("pipelines.NAME.sink.roll", RollConfig),
    ("pipelines.NAME.sink.store", StoreConfig),
    ("pipelines.NAME.sink.catalog", CatalogConfig),
    ("spark.NAME", SparkConfig),
    ("spark.NAME.source", SparkDataset),
    ("spark.NAME.source", SparkBrokers),
    *(("spark.NAME.source", model) for model in map(brokers_model, SYSTEMS) if not model.unranged),
    ("spark.NAME.decode", SparkDecode),
    ("spark.NAME.dedupe", SparkDedupe),
    ("spark.NAME.output", SparkOutput),
)
# What one of several tables of the same name is for.
TITLES |= AUTH_MODELS
TITLES |= {SparkDataset: "a dataset", SparkBrokers: "brokers"}
# Each system has a table of its own with the keys of one of these, and more.
SHARED: tuple[type[Table], ...] = (SourceConfig, SparkBrokers, AuthConfig)
TABLE_KEYS = ("auth", "tls", *OWN_TABLES.values(), "registry", "roll")  # listed last, as they stand in a file
OF_SYSTEMS = ("url", "topics_pattern")  # keys whose form depends on the system
# Required by a check that looks at several keys, so no model says it.
ONE_OF = {
    (SourceConfig, "topics"): "this or topics_pattern",
    (SourceConfig, "topics_pattern"): "this or topics",
    (SparkBrokers, "topics"): "this or topics_pattern",
    (SparkBrokers, "topics_pattern"): "this or topics",
    (SinkConfig, "path"): "required for files",
    (DecodeConfig, "schema"): "required without a registry",
    (SinkConfig, "writers"): "2",
    (DaemonConfig, "memory"): "a quarter of the machine's",
}
HEAD = """\
# Configuration

<!-- Written by `python -m docs.configuration` from the models in daemon/config; `make docs` runs it. -->

A configuration is one TOML file with any number of pipelines and Spark jobs. [complete.toml](../conf/complete.toml)
shows every key with a comment; `fastwire-consume schema` prints the JSON Schema for editors.
`fastwire-consume check FILE` reports all mistakes of a file at once, each with its line, and ends with exit code 78.

* A key that no table has is an error. The message names the nearest known key.
* Strings may hold `${NAME}`, `${NAME:-default}` and `${file:/path}`. `$${` is a plain `${`.
* Sizes are `"128MiB"` (powers of 1024), `"128MB"` (of 1000) or a number of bytes. Times are `"500ms"`, `"30s"`, `"5m"`,
  `"1h30m"` or `"2d"`. No size is above `16TiB`, no time above `36500d`. Those of Kafka's requests are below `2GiB` and
  at most `24d`, which is what its protocol can say.
* Relative paths begin at the working directory of the process.
* Secrets (`token`, `password`, `client_secret`, `key_password`) appear in no log, status page or error.

Two pipelines must not get in each other's way: the place of one must not lie within that of another, and one
subscription on one topic is for one pipeline, or for several that land in one dataset. `check` also finds datasets of
other files above a new place, and those below it: in 10,000 folders, or in 100 names of a store (`--connect`).

SIGHUP makes a running daemon read the file again.
"""


def page() -> str:
    """The text of docs/configuration.md."""
    definitions = json_schema()["$defs"]
    parts = [HEAD]
    of_jobs = {key for grammar in grammars() for key in brokers_model(grammar.name).model_fields}
    for name, model in TABLES:
        title = TITLES.get(model, "")
        parts.append(f"## [{name}]{f' of {title}' if title else ''}\n\n{model.__doc__}\n")
        if any(model is not base and issubclass(model, base) for base in SHARED):
            parts.append("These keys stand beside those above.\n")
        # Each system has the keys that all share.
        of_system = {SourceConfig: source_model, SparkBrokers: brokers_model}.get(model)
        schema = definitions[(model if of_system is None else of_system(SYSTEMS[0])).__name__]
        key = name.removeprefix("pipelines.NAME.source.")
        if key in of_jobs and model not in AUTH_MODELS:
            parts.append(f"`[{name.replace('pipelines', 'spark')}]` is the same table.\n")
        lines = ["| key | values | default | meaning |", "|---|---|---|---|", *_rows(model, schema)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _rows(model: type[Table], schema: Schema) -> Iterator[str]:
    shared = next((base.model_fields for base in SHARED if base is not model and issubclass(model, base)), {})
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] in TABLE_KEYS):
        key = field.alias or name
        if name in shared and shared[name].annotation is field.annotation:
            continue
        if key not in schema["properties"]:
            continue
        shape = schema["properties"][key]
        told = ONE_OF.get((model, name)) or _default(
            field.get_default(call_default_factory=False), shape, required=field.is_required()
        )
        text = " ".join(shape.get("description", "A table, below on this page.").split())
        if key in OF_SYSTEMS:
            examples = (each for one in (shape, *shape.get("anyOf", ())) for each in one.get("examples", ()))
            text += f" Examples: {', '.join(f'`{each}`' for each in examples)}."
        yield f"| `{key}` | {_values(shape)} | {told} | {_escaped(text)} |"


def _values(shape: Schema) -> str:
    """The type of a value, or the choices."""
    if "$ref" in shape:
        return "table"
    if "anyOf" in shape:
        return " or ".join(dict.fromkeys(_values(one) for one in shape["anyOf"] if one.get("type") != "null"))
    if "const" in shape:
        return f"`{shape['const']}`"
    if "enum" in shape:
        return " ".join(f"`{one}`" for one in shape["enum"])
    kind = shape.get("type")
    if kind == "array":
        return "array of column names" if "enum" in shape["items"] else f"array of {_plural(shape['items'])}"
    if "properties" in shape:
        return "table"
    if kind == "object":
        return f"table of {_plural(shape.get('additionalProperties', {}))}"
    if kind == ["string", "integer"]:
        return "size"
    if kind == "boolean":
        return "true or false"
    if shape.get("format") == "date-time":
        return "time (RFC 3339)"
    if shape.get("examples") == ["30s"]:
        return "time"
    return "number" if kind == "integer" else str(kind)


def _plural(shape: Schema) -> str:
    return {"integer": "numbers", "object": "tables"}.get(shape["type"], "strings")


def _default(value: object, shape: Schema, *, required: bool) -> str:
    if required:
        return "required"
    if value is None or value is PydanticUndefined or isinstance(value, Table) or value in ({}, ()):
        return "`available-now`" if shape.get("examples", [""])[0] == "available-now" else ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Start):
        return f"`{value}`"
    if shape.get("type") == ["string", "integer"] and isinstance(value, int):
        return f"`{format_size(value)}`"
    if isinstance(value, float):
        return f"`{format_duration(value)}`"
    if isinstance(value, int):
        return f"`{value:_}`"
    return f"`{value}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main(arguments: Sequence[str] = ()) -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
