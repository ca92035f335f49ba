"""Rules between the pipelines of one file: places within each other, and one subscription on one topic twice."""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, permutations

from fastwire.grammar import Grammar
from fastwire.systems import grammar_named

from .brokers.source import SourceConfig, SubscribedSource, TopicChoice
from .model import PipelineConfig
from .sinks.topicplaces import place_pattern
from .spark import SparkConfig
from .values.fields import TOPIC
from .values.text import KeyPath


def conflicts(
    pipelines: Mapping[str, PipelineConfig], jobs: Mapping[str, SparkConfig]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the keys that conflict with another pipeline or job of the file, each with the message for the user."""
    yield from _nested(pipelines, jobs)
    for (name, one), (other, two) in combinations(pipelines.items(), 2):
        topic = one_cursor(one.source, two.source) if one.source.divides and two.source.divides else ""
        if topic and not _one_dataset(one, two):
            message = (
                f'"{_subscription(two.source)}" is also that of pipeline {name}, which reads {topic} from the same '
                "brokers: each of the two would get a part of the records; give each a name of its own"
            )
            yield ("pipelines", other, "source", "subscription"), message


def _nested(pipelines: Mapping[str, PipelineConfig], jobs: Mapping[str, SparkConfig]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the places within those of other pipelines and jobs: readers of the outer one would find both."""
    places: list[tuple[tuple[str, ...], str, str]] = []
    for name, pipeline in pipelines.items():
        if pipeline.sink.path is not None:
            places.append((("pipelines", name, "sink", "path"), f"pipeline {name}", _real(pipeline.sink.path)))
    for name, job in jobs.items():
        for last, place in (("path", job.output.path), ("dead_letters", job.output.dead_letters)):
            places.append((("spark", name, "output", last), f"job {name}", _real(place)))
    for (key, owner, inner), (other_key, other, outer) in permutations(places, 2):
        if owner != other and TOPIC in outer and place_pattern(outer).match(inner) and TOPIC not in inner:
            yield key, f"may be a dataset of {other}, or lie within one: {outer} has one for each topic; {_ASIDE}"
        if owner != other and inner.startswith(f"{outer}/"):  # the places of one job have a rule of their own
            yield key, f"lies within {'.'.join(other_key[2:])} of {other}: {_ASIDE}"


_ASIDE = "readers of that folder would find the files of both; use folders beside each other"


def _real(place: object) -> str:
    """Return the place in a form in which equal places are equal texts."""
    text = str(place)
    return text.rstrip("/") if "://" in text else os.path.realpath(text).rstrip("/")


def _one_dataset(one: PipelineConfig, two: PipelineConfig) -> bool:
    """Return True if both land in one dataset, which then has all records."""
    places = [_real(each.sink.path) for each in (one, two) if each.sink.path is not None]
    return len(places) == 2 and places[0] == places[1]


def _subscription(source: SourceConfig) -> str:
    return source.subscription if isinstance(source, SubscribedSource) else ""


def one_cursor(one: SourceConfig, two: SourceConfig) -> str:
    """Return a topic, or the pattern of topics, on which brokers keep one progress for both sources; "" if none."""
    same = one.system == two.system and _subscription(one) == _subscription(two) != ""
    if not same or not set(one.url.hosts.split(",")) & set(two.url.hosts.split(",")):
        return ""
    return min(_common(one.chosen, two.chosen, grammar_named(one.system)), default="")


def _common(one: TopicChoice, two: TopicChoice, grammar: Grammar) -> set[str]:
    """Return topics of both choices, as far as their texts show them."""
    if one.pattern is not None and two.pattern is not None:
        return {str(one.pattern)} & {str(two.pattern)}
    if one.pattern is not None:
        return set(map(str, one.pattern.chosen(two.names)))
    if two.pattern is not None:
        return set(map(str, two.pattern.chosen(one.names)))
    return _within(one.names, two.names, grammar) | _within(two.names, one.names, grammar)


def _within(names: Iterable[str], others: Iterable[str], grammar: Grammar) -> set[str]:
    """Return those of ``names`` that are among ``others``, or partitions of them."""
    if not grammar.topic_is_partition:
        return set(names) & set(others)
    return {name for name in names if {name, grammar.partition(name)[1]} & set(others)}
