"""``check --connect``: whether the brokers answer, let us in, and have the topics. Moves no cursor, creates nothing."""

import asyncio

from fastwire.errors import FastwireError
from fastwire.wire.pool import Pool

from .checks import CheckResult
from .config import Config, PipelineConfig
from .sources.pulsar import settings_from
from .sources.pulsar.reader import Reader

__all__ = ["check_connections"]

PATIENCE_S = 30.0
MEMORY = 16 << 20


def check_connections(config: Config) -> list[CheckResult]:
    """One result for the broker of each pipeline, and one for each of its topics if the broker answers."""
    return asyncio.run(_check_all(config))


async def _check_all(config: Config) -> list[CheckResult]:
    found = await asyncio.gather(*(_check(name, pipeline) for name, pipeline in config.pipelines.items()))
    return [result for results in found for result in results]


async def _check(name: str, pipeline: PipelineConfig) -> list[CheckResult]:
    source = pipeline.source
    reader: Reader | None = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader = Reader(settings_from(source), Pool(MEMORY))
            topics = await reader.describe()
    except FastwireError as exc:
        return [CheckResult(name, "broker", False, str(exc))]
    except TimeoutError:
        return [CheckResult(name, "broker", False, f"{source.url} has not answered within {PATIENCE_S:.0f} s")]
    finally:
        if reader is not None:
            await reader.close()
    results = [CheckResult(name, "broker", True, f"{source.url} answers and lets us in")]
    if not topics:
        results.append(CheckResult(name, "topic", True, f"none matches {source.topics_pattern} yet"))
    for topic, count in topics:
        partitions = f"{count} partitions" if count else "not partitioned"
        results.append(CheckResult(name, "topic", True, f"{topic}: {partitions}"))
    return results
