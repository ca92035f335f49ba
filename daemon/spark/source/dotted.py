"""Options with a dot, such as ``auth.token_file``: the keys of a connection's tables."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, get_origin

from fastwire.systems import grammars

from ...config.brokers.connection import connection_model
from ...config.table import Table, table_in


@cache
def _tables() -> frozenset[str]:
    """Return the names of the tables that a connection of any system has."""
    models = [connection_model(grammar.name) for grammar in grammars()]
    return frozenset(key for model in models for key, field in model.model_fields.items() if table_in(field.annotation))


def in_table(name: str) -> bool:
    """Return True for an option that is a key of a table of some system's connections."""
    table, dot, _ = name.partition(".")
    return bool(dot) and table in _tables()


def keys_of_tables(given: Mapping[str, str], system: str) -> dict[str, Any]:
    """Return the tables of a connection to ``system`` that the options with a dot make, unchecked."""
    keys: dict[str, Any] = {}
    for name, value in given.items():
        if in_table(name):
            _put(keys, name.split("."), value, connection_model(system))
    return keys


def _put(keys: dict[str, Any], path: list[str], text: str, model: type[Table] | None) -> None:
    """Enter one dotted option; what is a table of names there is JSON here, because Spark forgets the case of names."""
    key, rest = path[0], path[1:]
    field = model.model_fields.get(key) if model is not None else None
    if rest:
        table = keys.setdefault(key, {})
        if isinstance(table, dict):
            _put(table, rest, text, None if field is None else table_in(field.annotation))
        return
    try:
        keys[key] = json.loads(text) if field is not None and get_origin(field.annotation) is dict else text
    except ValueError:
        keys[key] = text
