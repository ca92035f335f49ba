"""The first records of a pipeline's topics, decoded and transformed as the pipeline would, for ``check --connect``."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from fastwire.errors import FastwireError

from ...config import PipelineConfig, TopicChoice, parse_start
from ...systems.registry import reading, system_named, topic_schemas
from .checks import CheckResult

if TYPE_CHECKING:
    from fastwire.columns.chunk import Chunk

    from ...sinks.transform import TransformedValues
    from ...sinks.valuedecoder import ValueDecoder

MOST_TOPICS = 20
MOST_RECORDS = 100  # of each topic
PATIENCE_S = 30.0  # for one topic


class _Trial:
    """Counts of the records of one topic."""

    def __init__(self, decoder: "ValueDecoder | TransformedValues") -> None:
        self._decoder = decoder
        self.records = 0
        self.dead_letters = 0
        self.filtered = 0
        self.reason = ""
        """The reason why the first dead letter cannot land."""

    def decode(self, chunk: "Chunk") -> None:
        """Decode records until there are enough of the topic. May ask a registry, so it is for another thread."""
        from ...sinks.recordrows import taken

        rest, runs = taken(chunk)
        batch = rest.slice(0, MOST_RECORDS - self.records)
        self.records += batch.num_rows
        for rows in self._decoder.decode(batch, runs, _give_up):
            self.dead_letters += len(rows.dead_letters)
            self.filtered += rows.filtered
            self.reason = self.reason or next((letter.reason for letter in rows.dead_letters), "")


def _give_up(why: str, seconds: float) -> None:
    raise FastwireError(why)


async def try_first_records(name: str, pipeline: PipelineConfig, topics: Sequence[str]) -> list[CheckResult]:
    """Return a result for each of these topics: how many of their first records the decoder or query takes.

    Moves no cursor. A topic fails if no record is taken, or if it or the schemas cannot be read. Of a dataset for each
    topic there is one result for all topics of which each record is taken.
    """
    step, done = ("transform", "transformed") if pipeline.decode is None else ("decode", "decoded")
    results, sound = [], 0
    for topic in islice(topics, MOST_TOPICS):
        try:
            async with asyncio.timeout(PATIENCE_S):
                trial = await _tried(pipeline, topic)
            if pipeline.sink.by_topic and not trial.dead_letters:
                sound += 1
            else:
                results.append(CheckResult(name, step, *_said(topic, trial, done)))
        except FastwireError as exc:
            results.append(CheckResult(name, step, False, f"{topic}: {exc}"))
        except TimeoutError:
            detail = f"{topic}: its first records have not come within {PATIENCE_S:.0f} s"
            results.append(CheckResult(name, step, False, detail))
    if pipeline.sink.by_topic and topics:
        tried = f"all first records of {sound:,} of the {len(results) + sound:,} topics that were tried can be {done}"
        results.insert(0, CheckResult(name, step, True, tried))
    return results


async def _tried(pipeline: PipelineConfig, topic: str) -> _Trial:
    from ...config.sinks.topicplaces import config_of_topic
    from ...sinks.registry import value_decoder

    if pipeline.sink.by_topic:
        pipeline = config_of_topic(pipeline, topic)
    source = pipeline.source
    keeping: dict[str, object] = {"source": source.model_copy(update={"on_corrupt": "dead_letter"})}
    if pipeline.decode is not None:
        keeping["decode"] = pipeline.decode.model_copy(update={"on_error": "dead_letter"})
    decoder = value_decoder(pipeline.model_copy(update=keeping), topics=topic_schemas(pipeline))
    assert decoder is not None, "the pipeline makes columns"
    trial = _Trial(decoder)
    start = parse_start("earliest", system_named(source.system).grammar)
    async with reading(source, TopicChoice((topic,)), start) as reader:
        async for chunk in reader.up_to_now():
            if chunk.rows:
                await asyncio.to_thread(trial.decode, chunk)
            if trial.records >= MOST_RECORDS:
                break
    return trial


def _said(topic: str, trial: _Trial, done: str) -> tuple[bool, str]:
    if not trial.records:
        return True, f"{topic}: it has no records yet"
    sound = trial.records - trial.dead_letters
    detail = f"{topic}: {sound} of its first {trial.records} records can be {done}"
    if trial.filtered:
        detail += f", {trial.filtered} of them are filtered out"
    if trial.reason:
        detail += f"; the first of the others: {trial.reason}"
    return sound > 0, detail
