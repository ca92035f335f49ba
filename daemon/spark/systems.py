"""Which code speaks to which system, and the connections that a process keeps from task to task."""

import gc
from collections.abc import Callable, Iterator

import pyarrow as pa

from ..pulsar.settings import ClientSettings, client_fields
from .broker import Broker, RangeRows
from .options import Options
from .prefetch import prefetched
from .pulsar.client import Client
from .pulsar.driver import PulsarBroker
from .pulsar.reading import RangeReader, ReadingRules
from .ranges import Range
from .rows import Rows

__all__ = ["open_broker", "read_range"]

# Python workers are used again for later tasks: one client a process waits for the next one. Its key is everything
# that was asked for, secrets included; it never leaves the process.
_kept: dict[str, Client] = {}
_frozen = False


def open_broker(options: Options) -> Broker:
    """The driver's conversation with the brokers; connects when it is first asked something."""
    return PulsarBroker(Client(_settings(options)), options)


def read_range(options: Options, part: Range, key: str) -> Iterator[pa.RecordBatch]:
    """The rows of ``part`` as Spark expects them. ``key`` names the options among all that this process may meet."""
    _settle()
    rows = Rows(options.columns, part.partition.topic, options.batch_rows, options.batch_bytes)

    def open_rows(stopped: Callable[[], bool]) -> RangeRows:
        return _Pulsar(options, part, key, stopped)

    for batch in prefetched(open_rows, options.prefetch):
        yield from rows.batches(batch)


class _Pulsar:
    """A range of Pulsar's, over the client that the last task has left."""

    def __init__(self, options: Options, part: Range, key: str, stopped: Callable[[], bool]) -> None:
        self._key = key
        self._client = _kept.pop(key) if key in _kept else Client(_settings(options))
        rules = ReadingRules(
            window=options.window,
            patience_s=options.patience_s,
            fail_on_data_loss=options.fail_on_data_loss,
            name=f"{options.prefix}-task",
        )
        self._reader = RangeReader(self._client, part, rules, stopped)
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


def _settings(options: Options) -> ClientSettings:
    return ClientSettings(**client_fields(options.source), columns=Rows.built(options.system, options.columns))


def _settle() -> None:
    """What was imported stays: Spark collects after every task, and would look through all of it each time."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
