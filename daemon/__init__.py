"""The sockets, threads, time and files around fastwire. The folder ``daemon`` installs as ``fastwire_daemon``."""

from fastwire.position import NumberPositions, PairPositions, register
from fastwire.systems import positions, positions_named

# The systems whose logs stand in durable state. The log of a Spark query is the query itself, its entries are batches;
# that of a landed dataset that a job reads is the dataset, its entries are files.
register(
    *positions(),
    NumberPositions("spark", "the number of a batch, for example 12"),
    PairPositions("dataset", "log entry and file, for example 12.0"),
    find=positions_named,
)
