"""The table of a topic as a sink: the rules between its keys."""

from collections.abc import Mapping
from typing import Any

from fastwire.grammar import Grammar
from fastwire.systems import grammar_named

from ..brokers.connection import Tell, connection_model
from ..values.text import KeyPath
from .store import check_store

DATASET_KEYS = (
    "path",
    "store",
    "catalog",
    "table",
    "names",
    "branch",
    "compression",
    "split",
    "partition_by",
    "create",
)
"""Keys of a sink that writes files."""
_OWN = ("path", "store", "create", "compression")  # of them: keys of a topic


def check_topic_sink(path: KeyPath, sink: dict[str, Any], tell: Tell) -> None:
    """Check the keys of a sink that writes to a topic; put those of its connection into the table ``connection``."""
    system = sink["type"]
    for key in ("columns", "writers", *DATASET_KEYS):
        if key in sink and key not in _OWN:
            tell((*path, key), f"is for files: {system} is a topic here")
    exactly_once = sink.get("delivery") == "exactly-once"
    means = grammar_named(system).exactly_once
    if exactly_once and not means:
        tell((*path, "delivery"), f"cannot be exactly-once: {system} has no means for it")
    in_topics = exactly_once and means == "transactions"
    if in_topics and "path" in sink:
        tell((*path, "path"), "is for at-least-once: the positions are in a topic of the same cluster")
    if exactly_once and means == "deduplication" and "path" not in sink:
        tell((*path, "path"), "is required for exactly-once: the place of the positions")
    if in_topics and sink.get("on_error") == "dead_letter" and "dead_letters" not in sink:
        tell((*path, "on_error"), "needs a topic for dead letters: dead_letters is missing")
    for key in ("positions", "dead_letters"):
        if not in_topics and key in sink:
            tell((*path, key), 'is for delivery = "exactly-once" in transactions')
    positions = sink.get("positions", "fastwire-positions")
    if positions == sink.get("topic"):
        tell((*path, "topic"), "is the topic of the positions")
    if sink.get("dead_letters") in {positions, sink.get("topic")} - {None}:
        tell((*path, "dead_letters"), "is the topic of the records, or that of the positions")
    if "path" in sink:
        check_store(path, sink, tell)
    elif not exactly_once:
        for key in ("store", "create"):
            if key in sink:
                tell((*path, key), "is for the folder of the positions: path is missing")
        if sink.get("on_error") == "dead_letter":
            tell((*path, "on_error"), "needs a place for dead letters: path is missing")
    if "topic" not in sink:
        tell((*path, "topic"), "is required: the name of the topic")
    keys = connection_model(system).known_keys()
    sink["connection"] = {key: sink.pop(key) for key in list(sink) if key in keys}


def check_target(
    path: KeyPath, sink: Mapping[str, Any], source: Mapping[str, Any], grammar: Grammar, tell: Tell
) -> None:
    """Check the topic at the URL of a sink, whose system has ``grammar``: it must not be one of the source."""
    if grammar.name != sink["type"]:
        tell((*path, "url"), f'is an address of {grammar.name}, but type is "{sink["type"]}"')
    topic = sink.get("topic")
    if not isinstance(topic, str) or not topic:
        return
    try:
        name = grammar.topic(topic)
    except ValueError as exc:
        tell((*path, "topic"), str(exc))
        return
    topics = source.get("topics") if source.get("url") == sink["connection"].get("url") else None
    for text in topics if isinstance(topics, list) else ():
        try:
            if name in topic_names(grammar, text):
                tell((*path, "topic"), "is a topic of the source: each record would come again")
        except ValueError:
            continue  # the model reports it


def topic_names(grammar: Grammar, text: object) -> tuple[str, str]:
    """Return the name of a topic, and of the partitioned topic that it belongs to (or the same name again).

    Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError("not a string")
    name = grammar.topic(text)
    return (name, grammar.partition(name)[1]) if grammar.topic_is_partition else (name, name)
