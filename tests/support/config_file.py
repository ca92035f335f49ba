"""A minimal configuration file, the same with other keys, and what is wrong with one, for tests."""

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from fastwire.systems import SYSTEMS, row_of
from fastwire_daemon.config import ConfigError, parse_config

COLUMNS = list(dict.fromkeys(name for system in SYSTEMS for name in row_of(system).names))

MINIMAL = """\
[pipelines.orders.source]
url = "pulsar://127.0.0.1:6650"
topics = ["persistent://public/default/orders"]
subscription = "fastwire-orders"
start = "earliest"

[pipelines.orders.sink]
type = "parquet"
path = "/data/orders"
"""


def problems(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, environ or {}, name="f.toml")
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def problem(text: str, environ: Mapping[str, str] | None = None) -> str:
    (only,) = problems(text, environ)
    return only


def source(**keys: str) -> str:
    """The minimal file with more keys in its source, or others than usual."""
    return _table("source", {**_keys("source"), **keys}) + _table("sink", _keys("sink"))


def sink(**keys: str) -> str:
    return _table("source", _keys("source")) + _table("sink", {**_keys("sink"), **keys})


def _keys(table: str) -> dict[str, str]:
    values: dict[str, Any] = tomllib.loads(MINIMAL)["pipelines"]["orders"][table]
    return {key: repr(value) for key, value in values.items()}


def _table(name: str, keys: Mapping[str, str]) -> str:
    return f"[pipelines.orders.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items() if value)


def one(text: str, environ: Mapping[str, str] | None = None) -> Any:
    return parse_config(text, environ or {}).pipelines["orders"]
