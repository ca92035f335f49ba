"""Scenes for the Kafka source: an embedded broker, and a source that reads from it."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from tests.support import source_pipe
from tests.support.kafka.source_pipe import KafkaPipe
from tests.support.source_pipe import playing


def serving(partitions: int = 1, **options: Any) -> AbstractAsyncContextManager[KafkaDevBroker]:
    """See ``source_pipe.serving``."""
    return source_pipe.serving(KafkaDevBroker(KafkaOptions(**options)), partitions)


def reading(
    broker: KafkaDevBroker, *topics: str, started: bool = True, **more: Any
) -> AbstractAsyncContextManager[KafkaPipe]:
    return playing(KafkaPipe(broker, *topics, **more), started=started)


def assert_once(pipe: KafkaPipe, rows: int) -> None:
    assert pipe.once()
    assert pipe.rows == len(pipe.values) == rows
    assert pipe.dead_letters == []
