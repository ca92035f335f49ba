"""The matrix of Pulsar: what is shown to work, and by which witness.

The real broker is a single process here, so of proxies, redirects, migration and replication it shows nothing.
"""

from tests.matrix.pulsarconsumers import ROWS as CONSUMERS
from tests.matrix.pulsarrecords import ROWS as RECORDS

__all__ = ["ROWS"]

ROWS = [*RECORDS, *CONSUMERS]
