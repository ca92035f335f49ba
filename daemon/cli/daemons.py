"""The daemons that a command looks at: their addresses, their health, and their status in lines for people."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..config import ConfigError, HttpAddress, Problem, load_config
from ..config.values.address import parse_http_address
from ..runtime.amounts import counted, format_bytes
from ..runtime.health import MOST_SHOWN, Health
from ..service.client import NoDaemonError, local_address, read_status


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon as it was seen.

    ``health`` is one of ``Health`` or "no answer"; ``error`` says why there is no answer.
    """

    address: HttpAddress
    health: str
    status: Mapping[str, Any]
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        seen: dict[str, Any] = {"address": str(self.address), "health": self.health}
        return {**seen, "error": self.error} if self.error else {**seen, "status": self.status}


PLACES = {
    "stopped": "stopped_partitions",
    "unreadable": "unreadable_partitions",
    "recreated": "recreated_partitions",
}
"""The tables of a pipeline's status with a reason for each partition, by a word for what has happened to it."""


UNSOUND = ("stopped", "failed", "slow", "degraded")
"""The states of datasets that do not land all of their records, the worst first."""

MOST_DATASETS = 20  # lines about datasets of one pipeline
MOST_NAMED = 3  # partitions with one reason


class Fact(NamedTuple):
    """A line about a daemon or a pipeline; ``style`` is "bad", "dim" or ""."""

    label: str
    text: str
    style: str = ""


def address_of(text: str) -> HttpAddress:
    """Return the address of the daemon that ``text`` names: a URL, ``host:port``, ``unix:/path``, or its configuration.

    Raises ValueError for something else, ConfigError for a configuration that is wrong or has no HTTP server.
    """
    if text.endswith(".toml") or ("://" not in text and Path(text).is_file()):
        config = load_config(text)
        if config.daemon.http is None:
            raise ConfigError([Problem(text, "daemon.http", 'is "": this daemon has no HTTP server to ask')])
        return local_address(config.daemon.http)
    address = parse_http_address(text.removeprefix("http://").rstrip("/"))
    if address is not None and (address.path or address.port):
        return local_address(address)
    raise ValueError(f'"{text}" is not a daemon: give http://host:port, unix:/path, or its configuration file')


def look_at(address: HttpAddress, timeout_s: float) -> Daemon:
    """Ask the daemon at ``address`` for its status, and judge it as its probes do."""
    try:
        status = read_status(address, timeout_s)
    except NoDaemonError as exc:
        return Daemon(address, "no answer", {}, str(exc))
    return Daemon(address, _health(status), status)


def _health(status: Mapping[str, Any]) -> str:
    if status.get("health") in set(Health):
        return str(status["health"])
    # Of an older daemon, which knows no degraded pipelines.
    if not status.get("live"):
        return Health.STUCK
    return Health.HEALTHY if status.get("ready") else Health.NOT_READY


def daemon_facts(daemon: Daemon) -> Iterator[Fact]:
    """Yield the lines about the process."""
    style = "" if daemon.health == Health.HEALTHY else "bad"
    yield Fact("daemon", f"{daemon.address} {daemon.health}", style)
    if daemon.error:
        yield Fact("error", daemon.error, "bad")
        return
    memory = table_of(daemon.status, "memory")
    used, limit = (format_bytes(_count(memory, name)) for name in ("used", "limit"))
    yield Fact("process", f"fastwire {daemon.status.get('version', '?')}, pid {daemon.status.get('pid', '?')}")
    yield Fact("memory", f"{used} of {limit}")


def pipeline_facts(pipeline: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the lines about one pipeline of ``/status``; the first one is its state."""
    state = str(pipeline.get("state", "?"))
    health = pipeline.get("health")
    told = f"{state}, {health}" if health not in (None, Health.HEALTHY) else state
    yield Fact("state", told, "bad" if state == "failed" or told != state else "")
    for why in texts_of(pipeline, "degraded"):
        yield Fact(str(health), why, "bad")
    if pipeline.get("error"):
        yield Fact("error", str(pipeline["error"]), "bad")
    given = set[str]()
    for label, name in PLACES.items():
        for partitions, why in summed(table_of(pipeline, name)):
            given.add(why)
            yield Fact(label, f"{partitions}: {why}", "" if label == "recreated" else "bad")
    yield from dataset_facts(pipeline)
    if pipeline.get("awaits"):
        yield Fact("waits", str(pipeline["awaits"]))
    yield Fact(
        "rate",
        f"{number_of(pipeline, 'rows_per_s'):,.0f} rows/s, {format_bytes(int(number_of(pipeline, 'bytes_per_s')))}/s",
    )
    received, payload = _count(pipeline, "rows_received"), format_bytes(_count(pipeline, "bytes_received"))
    yield Fact("received", f"{received:,} rows, {payload}")
    roll, commits = table_of(pipeline, "roll"), _count(pipeline, "commits")
    yield Fact(
        "committed",
        f"{_count(pipeline, 'rows_committed'):,} rows in {counted(commits, 'commit')}; "
        f"{_count(roll, 'rows'):,} rows are not committed yet ({format_bytes(_count(roll, 'bytes'))})",
    )
    if dead_letters := _count(pipeline, "dead_letters"):
        reasons = ", ".join(f"{count:,} {name}" for name, count in table_of(pipeline, "dead_letter_reasons").items())
        yield Fact("dead letters", f"{dead_letters:,} since the start{reasons and f': {reasons}'}", "bad")
    if pipeline.get("last_commit_s_ago") is not None:
        yield Fact("last commit", f"{number_of(pipeline, 'last_commit_s_ago'):,.0f} s ago")
    if number_of(pipeline, "lag_s"):
        yield Fact(
            "lag in time", f"{number_of(pipeline, 'lag_s'):,.0f} s: the age of the newest record that has landed"
        )
    yield from _source_facts(table_of(pipeline, "source"), given)
    stages = table_of(pipeline, "stages")
    if limit := stages.get("limit"):
        helps = f"; what helps: {stages['setting']}" if stages.get("setting") else ""
        yield Fact("limited by", f"{limit}{helps}")


def dataset_facts(pipeline: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the lines about the datasets of a pipeline with one for each topic: their number by state, and the worst.

    The others have no lines: there may be thousands.
    """
    states = table_of(pipeline, "dataset_states")
    if not states:
        return
    named = [state for state in (*UNSOUND, *sorted({*states} - {*UNSOUND})) if _count(states, state)]
    told = ", ".join(f"{_count(states, state):,} {state}" for state in named)
    yield Fact("datasets", told, "bad" if named[:1] and named[0] in UNSOUND else "")
    datasets = table_of(pipeline, "datasets")
    worst = sorted(
        (UNSOUND.index(state), topic, state)
        for topic in datasets
        if (state := str(table_of(datasets, topic).get("state"))) in UNSOUND
    )
    for _, topic, state in worst[:MOST_DATASETS]:
        dataset = table_of(datasets, topic)
        why = [str(dataset["error"])] if dataset.get("error") else texts_of(dataset, "degraded")
        again = f"; retried in {number_of(dataset, 'retry_in_s'):,.0f} s" if dataset.get("retry_in_s") else ""
        yield Fact(state, f"{topic}: {'; '.join(why) or 'its commits take long'}{again}", "bad")
    if len(worst) > MOST_DATASETS:
        yield Fact("", f"and {len(worst) - MOST_DATASETS:,} more datasets: status --json has all of them", "bad")


def summed(whys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each reason of ``whys``, which has one for each partition, behind the partitions that have it.

    In an outage hundreds of partitions have the same one.
    """
    by_reason: dict[str, list[str]] = {}
    for partition, why in whys.items():
        by_reason.setdefault(str(why), []).append(partition)
    for why, partitions in by_reason.items():
        named, count = ", ".join(partitions[:MOST_NAMED]), len(partitions)
        if count > MOST_NAMED:
            named += f", … ({count:,}{' or more' if len(whys) == MOST_SHOWN else ''} partitions)"
        yield named, why


def _source_facts(source: Mapping[str, Any], given: Collection[str]) -> Iterator[Fact]:
    """``given`` are reasons that have a line already."""
    if source.get("url"):
        yield Fact("source", str(source["url"]))
    if partitions := table_of(source, "partitions"):
        yield Fact("partitions", ", ".join(f"{count} {stage}" for stage, count in partitions.items()))
    for logs, why in summed(table_of(source, "errors")):
        if why not in given:
            yield Fact("trouble", f"{logs}: {why}", "bad")
    links = source.get("connections")
    if isinstance(links, list) and links:
        ready = sum(isinstance(link, dict) and bool(link.get("ready")) for link in links)
        yield Fact("connections", f"{ready} of {len(links)} ready", "bad" if ready < len(links) else "")
    if lag := table_of(source, "lag"):
        yield Fact(
            "lag",
            f"{_count(lag, 'backlog_entries'):,} entries not acknowledged; {_count(lag, 'behind_logs'):,} of "
            f"{_count(lag, 'known_logs'):,} partitions behind",
        )
        for topic, silent in table_of(lag, "silent_topics").items():
            rate, since = (_count(silent, name) for name in ("entries_per_hour", "silent_s"))
            yield Fact("silent", f"{topic}: hardly a record for {since:,} s, {rate:,} an hour before", "bad")


def table_of(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of the answer; an empty one if a daemon of another version has none."""
    value = status.get(name)
    return value if isinstance(value, dict) else {}


def texts_of(status: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts of the answer; an empty one without any."""
    value = status.get(name)
    return list(map(str, value)) if isinstance(value, list) else []


def number_of(status: Mapping[str, Any], name: str) -> float:
    """Return a number of the answer; 0 without one."""
    value = status.get(name)
    return value if isinstance(value, int | float) else 0


def _count(status: Mapping[str, Any], name: str) -> int:
    return int(number_of(status, name))
