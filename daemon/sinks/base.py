"""The contract of sinks: all that a third-party sink needs (entry point group ``fastwire.sinks``)."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.position import Log, Position

from ..runtime.errors import SinkFailedError, Superseded

if TYPE_CHECKING:
    from .valuedecoder import ValueDecoder

__all__ = ["Decoded", "FirstColumns", "LoggedSink", "Sink", "SinkFailedError", "Superseded", "logged"]


@runtime_checkable
class Sink(Protocol):
    """Takes chunks and reports which positions have landed.

    All four methods may block; they are called from one thread of the pipeline, one at a time. A call must not hold
    the interpreter lock for more than 5 ms at a time. Records that are written and not committed may be lost with the
    process; positions in a returned Coverage may be acknowledged to the broker.

    A call that takes long explains itself by ``runtime.outside.waits_for`` around what it waits for, with the deadline
    that this has, or by an attribute ``waiting`` (a text, None without a reason); threads of the sink that its calls
    wait for are found by an attribute ``threads`` with their numbers. ``/status`` has the reason. Without one a call
    is in the status after 10 s, in the log after 30 s, and ``/livez`` asks for a restart after 120 s.

    A sink with a true attribute ``quick`` promises that ``write`` returns at once: it is then called on the event
    loop's thread, which saves two thread switches per chunk.
    """

    def open(self) -> Coverage:
        """Acquire resources; return what has landed (empty if the sink cannot know).

        Called again after ``Superseded``, ``SinkFailedError`` or ``NoRecordYet``.
        """

    def write(self, chunk: Chunk) -> None:
        """Take the rows, spans and dead letters of ``chunk``; a call that waits is back-pressure on the source."""

    def commit(self) -> Coverage:
        """Make all written chunks durable and return the whole Coverage; without any it is a refresh.

        Raises Superseded or SinkFailedError: the roll is void, ``open`` must follow.
        """

    def close(self) -> None:
        """Release resources; uncommitted rows are dropped. Called once, also after an error."""


class FirstColumns(Protocol):
    """The columns with which a dataset begins, where they are those of values or of their schemas."""

    def __call__(self, decoder: "ValueDecoder", stop: threading.Event, /) -> None:
        """Add them to ``decoder``, each time the same. It blocks, and ends when ``stop`` is set.

        Raises NoRecordYet while the topics are empty, SinkFailedError while their records or schemas give no columns,
        DatasetMismatchError if no dataset can have the columns.
        """


class Decoded(NamedTuple):
    """Counts of values that were decoded into columns."""

    values: int = 0
    """Values that have landed."""
    dead_letters: int = 0
    """Values that became dead letters."""
    columns: int = 0
    """Columns that newer schemas have added to the dataset."""
    filtered: int = 0
    """Values that the transform has left out."""


@runtime_checkable
class LoggedSink(Sink, Protocol):
    """A sink with its own log: rows and positions are one commit, which makes a pipeline exactly-once.

    Methods are called from the pipeline's thread like those of Sink; properties and ``interrupt`` are for any thread.

    An optional method ``claim(cursors, cluster_id)`` is called before records of these logs are requested, with an
    empty roll, if the log has to know who writes them; it raises Superseded if another process does. The values are the
    cursors of the source's brokers, None without progress; a sink with ``follows_group`` has them also of logs that
    Coverage knows. For the id see ``identify``.

    An optional method ``identify(cluster_id)`` is called with the cluster's id ("": it has none) before records are
    requested. It raises DatasetMismatchError if the log belongs to another cluster. An optional property ``decoded``
    has the ``Decoded`` of all commits of this object, if it decodes values. An optional ``dead_letter_sums`` has those
    that the sink has made since the last commit. An optional property ``unpublished`` has the reason why committed
    files are not visible for now, "" without one, and ``publishing`` is True while a service has not answered yet
    whether they are: then ``refresh`` is called every second.
    """

    @property
    def exists(self) -> bool:
        """True if the log exists; known after ``open``, which does not create it."""

    @property
    def cluster(self) -> str:
        """The cluster name that all logs must carry, fixed when the log was created; known after ``open``."""

    @property
    def needed_columns(self) -> frozenset[str]:
        """The columns that chunks must have."""

    @property
    def staged_bytes(self) -> int:
        """Bytes on disk that are not committed yet."""

    @property
    def unpooled_bytes(self) -> int:
        """An estimate of the memory outside of the pool, in bytes: the buffers of encoders."""

    @property
    def too_many_files(self) -> bool:
        """True if the roll should end early, because it spans more folders than open files and memory allow."""

    @property
    def committed_files(self) -> int:
        """Files that this object has published so far."""

    @property
    def committed_bytes(self) -> int:
        """Size of these files in bytes."""

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds by stage so far: encode and write (the sum of all threads), fsync."""

    @property
    def waiting(self) -> str | None:
        """The reason why a call waits, as text for the status; None if it does not wait."""

    def interrupt(self) -> None:
        """End a wait for space: the call that waits raises SinkFailedError."""

    def create_dataset(self) -> None:
        """Create the log if it does not exist. Without this call the first ``commit`` does it."""

    def refresh(self) -> Coverage:
        """Read the commits of other writers and return the whole Coverage; the open roll stays open."""

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """Record with the next commit that a broker has confirmed all acks up to these positions."""


_LOGGED: set[type] = set()  # sinks of these have a log: a look at the whole protocol takes as long as a small commit


def logged(sink: Sink) -> LoggedSink | None:
    """Return ``sink`` if it has a log, else None.

    Raises TypeError if it creates a dataset and is no complete LoggedSink: it would be taken for one without a log, and
    its pipeline would not be exactly-once.
    """
    if type(sink) in _LOGGED:
        return cast(LoggedSink, sink)
    if isinstance(sink, LoggedSink):
        _LOGGED.add(type(sink))
        return sink
    if hasattr(sink, "create_dataset"):
        lacking = [name for name in LoggedSink.__annotations__ | vars(LoggedSink) if not hasattr(sink, name)]
        names = ", ".join(name for name in lacking if not name.startswith("_"))
        raise TypeError(f"the sink {type(sink).__name__} creates a dataset and lacks {names} of LoggedSink")
    return None
