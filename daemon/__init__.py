"""The sockets, threads, time and files around fastwire. The folder ``daemon`` installs as ``fastwire_daemon``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from .prompt.follow import follow
    from .prompt.read import read
    from .prompt.write import write

__all__ = ["follow", "read", "write"]

# The calls for people at a prompt. They load pyarrow, which a daemon may not need: each is imported when it is named.
_AT_THE_PROMPT = {"follow": "follow", "read": "read", "write": "write"}


def __getattr__(name: str) -> Any:
    if name not in _AT_THE_PROMPT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.prompt.{_AT_THE_PROMPT[name]}"), name)
