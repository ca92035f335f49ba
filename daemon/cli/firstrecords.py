"""The first records of a pipeline's topics, decoded as the pipeline would, for ``check --connect``."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from fastwire.errors import FastwireError

from ..config import PipelineConfig, TopicChoice, parse_start
from ..systems.registry import reading, system_named, topic_schemas
from .checks import CheckResult

if TYPE_CHECKING:
    from fastwire.columns.chunk import Chunk

    from ..sinks.valuedecoder import ValueDecoder

__all__ = ["try_schema"]

MOST_TOPICS = 20
MOST_RECORDS = 100  # of each topic
PATIENCE_S = 30.0  # for one topic


class _Trial:
    """Counts of the records of one topic."""

    def __init__(self, decoder: "ValueDecoder") -> None:
        self._decoder = decoder
        self.records = 0
        self.decoded = 0
        self.reason = ""
        """The reason why the first bad value cannot be decoded."""

    def decode(self, chunk: "Chunk") -> None:
        """Decode records until there are enough of the topic. May ask a registry, so it is for another thread."""
        import pyarrow as pa

        runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()]
        batch = pa.record_batch(chunk).slice(0, MOST_RECORDS - self.records)
        chunk.release()
        self.records += batch.num_rows
        for rows in self._decoder.decode(batch, runs, _give_up):
            self.decoded += rows.batch.num_rows
            self.reason = self.reason or next((letter.reason for letter in rows.letters), "")


def _give_up(why: str, seconds: float) -> None:
    raise FastwireError(why)


async def try_schema(name: str, pipeline: PipelineConfig, topics: Sequence[str]) -> list[CheckResult]:
    """Return a result for each of these topics: how many of their first records can be decoded. Moves no cursor.

    A topic fails if none of its records can, or if it or the schemas cannot be read.
    """
    results = []
    for topic in islice(topics, MOST_TOPICS):
        try:
            async with asyncio.timeout(PATIENCE_S):
                results.append(_result(name, topic, await _tried(pipeline, topic)))
        except FastwireError as exc:
            results.append(CheckResult(name, "decode", False, f"{topic}: {exc}"))
        except TimeoutError:
            detail = f"{topic}: its first records have not come within {PATIENCE_S:.0f} s"
            results.append(CheckResult(name, "decode", False, detail))
    return results


async def _tried(pipeline: PipelineConfig, topic: str) -> _Trial:
    from ..sinks.registry import decoder_of

    assert pipeline.decode is not None
    source = pipeline.source
    decode = pipeline.decode.model_copy(update={"on_bad": "divert"})
    decoder = decoder_of(decode, source.system, pipeline.sink.partition_by, topics=topic_schemas(pipeline))
    trial = _Trial(decoder)
    start = parse_start("earliest", system_named(source.system).grammar)
    async with reading(source, TopicChoice((topic,)), start) as reader:
        async for chunk in reader.up_to_now():
            if chunk.rows:
                await asyncio.to_thread(trial.decode, chunk)
            if trial.records >= MOST_RECORDS:
                break
    return trial


def _result(name: str, topic: str, trial: _Trial) -> CheckResult:
    if not trial.records:
        return CheckResult(name, "decode", True, f"{topic}: it has no records yet")
    detail = f"{topic}: {trial.decoded} of its first {trial.records} records can be decoded"
    if trial.reason:
        detail += f"; the first of the others: {trial.reason}"
    return CheckResult(name, "decode", trial.decoded > 0, detail)
