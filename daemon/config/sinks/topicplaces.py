"""The datasets of a sink that has one for each topic: their names, places and tables."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..brokers.connection import Tell
from ..decode import check_schema
from ..model import PipelineConfig
from ..problem import ConfigError, Problem
from ..values.fields import TOPIC
from ..values.text import KeyPath
from .partitioning import UNPARTITIONED
from .store import parse_dataset_path

MOST_BYTES = 120  # of a name; catalogs allow 128 or 255, and a path may have more around it
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SCHEME = re.compile(r"[a-z-]+://")


def dataset_name(topic: str, names: Mapping[str, str]) -> str:
    """Return the name of the dataset of ``topic``: that of ``names``, or one of letters, digits, ".", "_" and "-".

    A scheme is left out and "/" becomes "."; other characters become "_". A name that is too long is cut, and ends with
    "-" and 16 hex digits of the topic's SHA-256. Names of different topics may be alike: see :func:`name_key`.
    """
    if topic in names:
        return names[topic]
    text = re.sub(r"[^A-Za-z0-9._-]", "_", _SCHEME.sub("", topic).replace("/", "."))
    if not _NAME.fullmatch(text):
        text = f"topic{text}"  # readers take names with such a beginning for hidden
    if len(text) > MOST_BYTES:
        digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
        text = f"{text[: MOST_BYTES - 17]}-{digest}"
    return text


def table_name(name: str) -> str:
    """Return the name of a dataset as catalogs and SQL take it: small letters, digits and "_"."""
    text = re.sub(r"[^a-z0-9]", "_", name.lower())
    return f"t_{text}" if text[0].isdigit() else text


def name_key(name: str) -> str:
    """Return what two names must not have in common: some store or catalog would take them for one."""
    return table_name(name)


def dataset_names(topics: Iterator[str] | list[str], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the topics by the key of their names; of several topics of one key, only one can have a dataset."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        found.setdefault(name_key(dataset_name(topic, names)), []).append(topic)
    return found


def config_of_topic(config: PipelineConfig, topic: str, cluster: str | None = None) -> PipelineConfig:
    """Return the configuration of the pipeline that lands ``topic`` alone, of a ``cluster`` with this name.

    Raises ConfigError if the schema file of the topic does not fit.
    """
    sink = config.sink
    name = dataset_name(topic, sink.names)
    changes: dict[str, Any] = {"path": parse_dataset_path(str(sink.path).replace(TOPIC, name)), "names": {}}
    if sink.table is not None:
        changes["table"] = sink.table.replace(TOPIC, table_name(name))
    alone: dict[str, Any] = {"topics": (topic,), "topics_pattern": None}
    source = config.source.model_copy(update=alone if cluster is None else alone | {"cluster": cluster})
    own = config.model_copy(update={"sink": sink.model_copy(update=changes), "source": source})
    if config.decode is None or not config.decode.by_topic:
        return own
    decode = config.decode.of_topic(name)
    problems: list[Problem] = []

    def tell(path: KeyPath, message: str) -> None:
        problems.append(Problem("", ".".join(map(str, path)), message))

    check_schema(decode, sink.type, sink.partition_by, source.system, tell)
    if problems:
        raise ConfigError(problems)
    return own.model_copy(update={"decode": decode})


def config_of_every_topic(config: PipelineConfig) -> PipelineConfig:
    """Return what is the same for all topics: the configuration of one without a schema file that is its own."""
    decode, sink = config.decode, config.sink
    if decode is None or not decode.by_topic:
        return config
    by = UNPARTITIONED if sink.partition_by.time else replace(sink.partition_by, columns=())
    changes = {
        "decode": decode.of_every_topic(config.source.system),
        "sink": sink.model_copy(update={"partition_by": by}),
    }
    return config.model_copy(update=changes)


def place_pattern(path: object) -> re.Pattern[str]:
    """Return what the places of all datasets of ``path`` match as a whole; group 1 is the name."""
    before, _, behind = str(path).partition(TOPIC)
    again = re.escape(behind).replace(re.escape(TOPIC), r"\1")
    return re.compile(f"{re.escape(before)}([^/]+){again}")


def check_topic_places(path: KeyPath, sink: Mapping[str, Any], tell: Tell) -> None:
    """Report keys of a sink that do not fit a dataset for each topic, or its absence."""
    place, table, names = sink.get("path"), sink.get("table"), sink.get("names")
    many = isinstance(place, str) and TOPIC in place
    if not many:
        if isinstance(table, str) and TOPIC in table:
            tell((*path, "table"), f'has "{TOPIC}", so path must have it, too: each table needs a folder of its own')
        if names is not None:
            tell((*path, "names"), f'is for a path with "{TOPIC}"')
        return
    if isinstance(table, str) and TOPIC not in table:
        tell((*path, "table"), f'must have "{TOPIC}" as path has: each dataset is a table of its own')
    if sink.get("split") == "topic":
        tell((*path, "split"), f'"topic" adds nothing: with "{TOPIC}" in path each dataset has one topic')
    _check_names((*path, "names"), names, tell)


def _check_names(path: KeyPath, names: object, tell: Tell) -> None:
    owners: dict[str, str] = {}
    for topic, name in names.items() if isinstance(names, dict) else ():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MOST_BYTES:
            tell(
                (*path, topic),
                f'must be a name of at most {MOST_BYTES} letters, digits, ".", "_" and "-"; the first is no sign',
            )
            continue
        other = owners.setdefault(name_key(name), topic)
        if other != topic:
            tell((*path, topic), f'"{name}" is, for some stores and catalogs, also the name of {other}')
