"""Which code speaks to which system, and the connections that a process keeps from task to task."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from .broker import Broker, RangeRows
from .kafka.client import Client as KafkaClient
from .kafka.client import fetch_limits
from .kafka.client import settings_of as kafka_settings
from .kafka.driver import KafkaBroker
from .kafka.reading import KafkaRangeReader
from .options import Options
from .prefetch import prefetched
from .pulsar.client import Client as PulsarClient
from .pulsar.client import settings_of as pulsar_settings
from .pulsar.driver import PulsarBroker
from .pulsar.reading import PulsarRangeReader
from .ranges import Range
from .reading import RangeReader, ReadingRules
from .rows import Rows

__all__ = ["open_broker", "read_range"]


class Client(Protocol):
    """The connections of a process to one cluster."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class System:
    """What makes the parts of one system; a client is for one thread, and for many ranges one after another."""

    client: Callable[[Options], Any]
    broker: Callable[[Any, Options], Broker]
    reader: Callable[[Any, Range, ReadingRules, Callable[[], bool]], RangeReader]


_SYSTEMS = {
    "pulsar": System(
        lambda options: PulsarClient(pulsar_settings(options)),
        PulsarBroker,
        PulsarRangeReader,
    ),
    "kafka": System(
        lambda options: KafkaClient(kafka_settings(options), fetch_limits(options)),
        KafkaBroker,
        KafkaRangeReader,
    ),
}

# Python workers are used again for later tasks: one client a process waits for the next one. Its key is everything
# that was asked for, secrets included; it never leaves the process.
_kept: dict[str, Client] = {}
_frozen = False


def open_broker(options: Options) -> Broker:
    """The driver's conversation with the brokers; connects when it is first asked something."""
    system = _SYSTEMS[options.system]
    return system.broker(system.client(options), options)


def read_range(options: Options, part: Range, key: str) -> Iterator[pa.RecordBatch]:
    """The rows of ``part`` as Spark expects them. ``key`` names the options among all that this process may meet."""
    _settle()
    rows = Rows(options.columns, part.partition.topic, options.batch_rows, options.batch_bytes)

    def open_rows(stopped: Callable[[], bool]) -> RangeRows:
        return _Reading(options, part, key, stopped)

    for batch in prefetched(open_rows, options.prefetch):
        yield from rows.batches(batch)


class _Reading:
    """A range, over the client that the last task has left."""

    def __init__(self, options: Options, part: Range, key: str, stopped: Callable[[], bool]) -> None:
        system = _SYSTEMS[options.system]
        self._key = key
        self._client: Client = _kept.pop(key) if key in _kept else system.client(options)
        rules = ReadingRules(
            window=options.window,
            patience_s=options.patience_s,
            fail_on_data_loss=options.fail_on_data_loss,
            name=f"{options.prefix}-task",
        )
        self._reader = system.reader(self._client, part, rules, stopped)
        self._stopped = stopped
        self.rest = self._reader.rest

    def batches(self) -> Iterator[pa.RecordBatch]:
        whole = False
        try:
            yield from self._reader.batches()
            whole = not self._stopped()
        finally:
            if whole and self._key not in _kept:
                _kept[self._key] = self._client
            else:
                self._client.close()


def _settle() -> None:
    """What was imported stays: Spark collects after every task, and would look through all of it each time."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
