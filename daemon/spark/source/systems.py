"""The parts of each system for Spark, and the connections that a process keeps from task to task."""

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import pyarrow as pa

from fastwire.systems import package_of

from ...runtime.garbage import settle
from .broker import Broker
from .connections import Connections
from .options import Options
from .prefetch import prefetched
from .rangereader import ReadingRules
from .ranges import Range
from .rows import Rows
from .system import System

# Python workers are used again for later tasks: the connections of one task wait for the next one. Their key is
# everything that was asked for, secrets included; it never leaves the process.
_kept: dict[str, Connections[Any]] = {}
_settled = False


def _system(name: str) -> System:
    """Return the parts of a system; the modules of other systems are not imported, which would delay each process."""
    system: System = import_module(f"{package_of(name, __package__, 'spark')}.system").SYSTEM
    return system


def open_broker(options: Options) -> Broker[Any]:
    """Return the driver's access to the brokers; it connects at the first request."""
    system = _system(options.system)
    return system.broker(Connections(system.cluster(options)), options)


def read_range(options: Options, part: Range, key: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``part`` as Spark expects them. ``key`` identifies the options within this process."""
    global _settled
    if not _settled:  # Spark collects garbage after every task
        settle()
        _settled = True
    system = _system(options.system)
    rows = Rows(options.columns, part.partition.topic, options.batch_rows, options.batch_bytes)
    rules = ReadingRules(
        patience_s=options.patience_s,
        fail_on_data_loss=options.fail_on_data_loss,
        name=f"{options.prefix}-task",
    )
    connections = _kept.pop(key) if key in _kept else Connections(system.cluster(options))
    whole = False
    try:
        reader = system.reader(connections.cluster, part, rules)
        with closing(prefetched(connections, reader.read, options.prefetch)) as batches:
            for batch in batches:
                yield from rows.batches(batch)
        whole = True
    finally:
        if whole and key not in _kept:
            _kept[key] = connections
        else:
            connections.close()
