"""``check --connect``: whether the brokers answer, let us in, and have the topics. Moves no cursor, creates nothing."""

import asyncio

from fastwire.errors import FastwireError
from fastwire.pulsar.topic import parse_topic
from fastwire.wire.pool import Pool

from .checks import CheckResult
from .config import Config, SourceConfig
from .pulsar.quiet import QuietCluster
from .pulsar.settings import ClientSettings, client_fields, pattern_of
from .pulsar.topics import Topics

__all__ = ["check_connections"]

PATIENCE_S = 30.0
MEMORY = 16 << 20


def check_connections(config: Config) -> list[CheckResult]:
    """One result for the broker of each pipeline and job, and one for each of its topics if the broker answers."""
    return asyncio.run(_check_all(config))


async def _check_all(config: Config) -> list[CheckResult]:
    found = await asyncio.gather(*(_check(name, source) for name, source in config.sources.items()))
    return [result for results in found for result in results]


async def _check(name: str, source: SourceConfig) -> list[CheckResult]:
    describe = _describe_kafka if source.system == "kafka" else _describe_pulsar
    try:
        async with asyncio.timeout(PATIENCE_S):
            topics = await describe(source)
    except FastwireError as exc:
        return [CheckResult(name, "broker", False, str(exc))]
    except TimeoutError:
        return [CheckResult(name, "broker", False, f"{source.url} has not answered within {PATIENCE_S:.0f} s")]
    results = [CheckResult(name, "broker", True, f"{source.url} answers and lets us in")]
    if not topics:
        results.append(CheckResult(name, "topic", True, f"none matches {source.topics_pattern} yet"))
    for topic, count in topics:
        partitions = f"{count} partitions" if count else "not partitioned"
        results.append(CheckResult(name, "topic", True, f"{topic}: {partitions}"))
    return results


# Each topic with the number of its partitions, 0 = none; they ask who owns each, and read nothing.


async def _describe_pulsar(source: SourceConfig) -> list[tuple[str, int]]:
    names = [parse_topic(topic) for topic in source.topics]
    settings = ClientSettings(**client_fields(source))
    async with QuietCluster(settings) as cluster:
        news = await Topics(cluster, settings.url, names, pattern_of(source)).look()
        if news.failure is not None:
            raise news.failure
        for found in news.found:
            name = found.topic.of_partition(0) if found.partitions else found.topic
            await cluster.owner(str(name), settings.url)
    return [(str(found.topic), found.partitions) for found in news.found]


async def _describe_kafka(source: SourceConfig) -> list[tuple[str, int]]:
    from .sources.kafka import settings_from
    from .sources.kafka.reader import Reader

    reader = Reader(settings_from(source), Pool(MEMORY))
    try:
        return await reader.describe()
    finally:
        await reader.close()
