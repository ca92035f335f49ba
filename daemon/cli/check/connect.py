"""``check --connect``: checks brokers, credentials and topics. It moves no cursor and creates nothing."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from fastwire.errors import FastwireError

from ...config import Config, Connection, PipelineConfig, Secured, TopicChoice
from ...config.brokers.source import Reading, SourceConfig
from ...pipeline.topicchoice import ledger_options
from ...runtime.amounts import counted
from ...systems.ledger import LedgerFinding
from ...systems.registry import system_named
from .checks import CheckResult
from .firstrecords import try_first_records
from .topics import datasets_of_topics, registered_columns

PATIENCE_S = 30.0
MOST_TROUBLES = 10  # the number of failed partitions that are listed


def check_connections(config: Config, *, every: bool = False) -> list[CheckResult]:
    """Return a result for the broker of each pipeline and job, and for each of its topics if the broker answers.

    Of a dataset for each topic these are totals and the first datasets, or ``every`` one. Where values are decoded or
    transformed, there is one for the first records of each topic.
    """
    return asyncio.run(_check_all(config, every=every))


async def _check_all(config: Config, *, every: bool) -> list[CheckResult]:
    found = await asyncio.gather(
        *(_check(name, source, config.pipelines.get(name), every=every) for name, source in config.sources.items())
    )
    targets = await asyncio.gather(
        *(
            _check_target(name, pipeline, pipeline.sink.connection, pipeline.sink.topic or "")
            for name, pipeline in config.pipelines.items()
            if pipeline.sink.connection is not None
        )
    )
    return [result for results in (*found, *targets) for result in results]


async def _check_target(name: str, pipeline: PipelineConfig, connection: Connection, topic: str) -> list[CheckResult]:
    """Look for the topic that a pipeline writes to, and for what it needs to write to it exactly once."""
    system, sink = system_named(connection.system), pipeline.sink
    more: list[LedgerFinding] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            topics, _ = await system.describe(connection, TopicChoice((topic,)))
            if pipeline.brokers_decide or (sink.delivery == "exactly-once" and sink.path is None):
                more = await system.inspect_ledger(connection, topic, ledger_options(pipeline))
    except FastwireError as exc:
        return [CheckResult(name, "target", False, str(exc))]
    except TimeoutError:
        return [CheckResult(name, "target", False, f"{connection.url} has not answered within {PATIENCE_S:.0f} s")]
    counts = ", ".join(counted(count, "partition") if count else "not partitioned" for _, count in topics)
    return [
        CheckResult(name, "target", True, f"{topic}: {counts}"),
        *(
            [_delivery(name, more)]
            if pipeline.brokers_decide
            else [CheckResult(name, "exactly once", finding.ok, finding.detail) for finding in more]
        ),
    ]


def _delivery(name: str, findings: Sequence[LedgerFinding]) -> CheckResult:
    """Report what a pipeline will choose that names no delivery, and why."""
    if refused := [finding.detail for finding in findings if finding.refused]:
        return CheckResult(name, "delivery", True, f"at least once, because {'; '.join(refused)}")
    advice = "".join(f". {finding.detail}" for finding in findings if not finding.ok)
    return CheckResult(name, "delivery", True, f"exactly once: the brokers of the topic allow it{advice}")


def _starts(name: str, source: Reading, topics: Sequence[tuple[str, int]]) -> list[CheckResult]:
    """Report topics of which ``start`` does not name all partitions."""
    if not isinstance(source, SourceConfig) or source.start.kind != "positions":
        return []
    grammar = system_named(source.system).grammar
    named = Counter(topic for partition in source.start.positions for topic in set(grammar.partition(partition)))
    return [
        CheckResult(
            name,
            "start",
            True,
            f"names {named[topic]} of the {count} partitions of {topic}; the others stop if nothing of them has landed",
        )
        for topic, count in topics
        if named[topic] < count
    ]


async def _check(name: str, source: Reading, pipeline: PipelineConfig | None, *, every: bool) -> list[CheckResult]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            topics, troubles = await system_named(source.system).describe(source, source.chosen)
    except FastwireError as exc:
        return [CheckResult(name, "broker", False, str(exc))]
    except TimeoutError:
        return [CheckResult(name, "broker", False, f"{source.url} has not answered within {PATIENCE_S:.0f} s")]
    accepted = " and accepts the credentials" if isinstance(source, Secured) else ""
    results = [CheckResult(name, "broker", True, f"{source.url} answers{accepted}")]
    if not topics:
        results.append(CheckResult(name, "topic", True, f"no topic matches {source.topics_pattern} yet"))
    if pipeline is not None and pipeline.sink.by_topic:
        results += await asyncio.to_thread(datasets_of_topics, name, pipeline, topics, every=every)
    else:
        for topic, count in topics:
            partitions = counted(count, "partition") if count else "not partitioned"
            results.append(CheckResult(name, "topic", True, f"{topic}: {partitions}"))
        if pipeline is not None:
            results += await asyncio.to_thread(registered_columns, name, pipeline)
    results += _starts(name, source, topics)
    if pipeline is not None and pipeline.makes_columns:
        results += await try_first_records(name, pipeline, [topic for topic, _ in topics])
    results += [CheckResult(name, "partition", False, trouble) for trouble in troubles[:MOST_TROUBLES]]
    if len(troubles) > MOST_TROUBLES:
        results.append(CheckResult(name, "partition", False, f"and {len(troubles) - MOST_TROUBLES} more"))
    return results
