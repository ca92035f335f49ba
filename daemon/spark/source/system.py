"""The contract of a system for Spark: ``system.SYSTEM`` of its folder here, beside ``dialect.DIALECT``.

Whatever concerns brokers is done by the connections that the daemon has for that system, and where positions are
numbers by its source: a reader only says which positions to read, and passes Arrow batches on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .broker import Broker
from .connections import Cluster, Connections
from .options import Options
from .rangereader import RangeReader, ReadingRules
from .ranges import Range


@dataclass(frozen=True, slots=True)
class System:
    """The parts of one system.

    ``cluster`` returns the function that makes the cluster on its event loop, and raises ConfigError for unusable
    files. ``broker`` is for the driver, ``reader`` for a task; the cluster reads many ranges one after another.
    """

    cluster: Callable[[Options], Callable[[], Cluster]]
    broker: Callable[[Connections[Any], Options], Broker[Any]]
    reader: Callable[[Any, Range, ReadingRules], RangeReader]
