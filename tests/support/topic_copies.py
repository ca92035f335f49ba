"""Topics that are copied into topics: their records, the daemon that copies them, and daemons that are killed."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.tank import TankDevBroker
from tests.support.nursery import Forked, shared
from tests.support.waiting import eventually

__all__ = [
    "BROKERS",
    "LARGE",
    "append",
    "command",
    "copied",
    "copied_by_killed_daemons",
    "daemon",
    "has",
    "problems",
    "produce",
    "run",
    "tail",
]

LARGE = "z" * 20_000

BROKERS: dict[str, Callable[[], Any]] = {"kafka": KafkaDevBroker, "pulsar": PulsarDevBroker, "tank": TankDevBroker}


def command(*arguments: str | Path, given: str = "") -> str:
    ran = shared().run(*arguments, given=given)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def produce(broker: Any, topic: str, records: list[dict[str, Any]]) -> None:
    command("produce", broker.url, topic, "--format", "jsonl", given="\n".join(map(json.dumps, records)))


def append(broker: KafkaDevBroker, partition: int, *values: str) -> None:
    """Store a batch a record in the topic ``orders``."""
    for value in values:
        batch = encode_batch([Record(value=value.encode(), timestamp=1_700_000_000_000)])
        broker.append("orders", [batch], partition=partition)


def tail(broker: Any, topic: str) -> list[dict[str, Any]]:
    said = command("tail", broker.url, topic, "--from", "earliest", "--until-end", "--format", "jsonl")
    return [json.loads(line) for line in said.splitlines()]


def copied(broker: Any) -> list[str]:
    """Return the values of the topic ``copy``."""
    return [row["value"] for row in tail(broker, "copy")]


def has(target: Any, count: int) -> Callable[[], bool]:
    """A condition: ``copy`` has ``count`` records. It is not read while its ends say that it has fewer."""

    def there() -> bool:
        if isinstance(target, KafkaDevBroker) and sum(target.ends("copy")) < count:
            return False
        return len(copied(target)) >= count

    return there


def problems(text: str) -> list[str]:
    """Return what is wrong with a configuration."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, {}, "f.toml")
    return [str(problem) for problem in caught.value.problems]


def run(config: Path, code: int = 0) -> str:
    """Copy up to the end of the topics. Return what the daemon has said."""
    ran = shared().run("run", config, "--until-end")
    assert ran.returncode == code, ran.stderr
    return ran.stderr


@contextmanager
def daemon(config: Path) -> Iterator[Forked]:
    """A daemon that is killed at the end of the block."""
    with open(os.devnull, "r+b") as nothing:
        process = shared().fork(["run", str(config)], {}, (nothing, nothing, nothing))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def copied_by_killed_daemons(config: Path, source: Any, target: Any, values: list[str], killed: int) -> list[str]:
    """Return what has been copied when ``killed`` daemons were killed amid a part of ``values`` each."""
    if source.scheme == "kafka":  # a group would wait for the end of the session of the killed one
        config.write_text(config.read_text().replace("start =", 'group_protocol = "none"\nstart ='))
    if source.scheme == "tank":  # its brokers keep no progress
        config.write_text(config.read_text().replace('subscription = "mirror"\n', ""))
    key = {} if source.scheme == "tubemq" else {"key": "k"}
    part = len(values) // killed
    for first in range(0, len(values), part):
        with daemon(config):
            before = len(copied(target))
            produce(source, "orders", [{"value": value, **key} for value in values[first : first + part]])
            eventually(has(target, before + 1), "records")
    run(config)
    return copied(target)
