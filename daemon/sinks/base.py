"""What a sink must do. A third-party sink needs nothing but this file (entry point group ``fastwire.sinks``)."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from fastwire.columns.chunk import Chunk
from fastwire.position import Coverage, Log, Position

from ..errors import SinkFailedError, Superseded

__all__ = ["LoggedSink", "Sink", "SinkFailedError", "Superseded"]


@runtime_checkable
class Sink(Protocol):
    """Takes chunks and says what of them is durable.

    All four methods may block; they are called from one thread of the pipeline and never at once. A call must not hold
    the interpreter lock for more than 5 ms at a time. Whatever is written and not committed may be lost with the
    process; whatever a returned Coverage holds may be acknowledged to the broker.

    A sink with an attribute ``quick`` that is true promises that ``write`` neither waits nor works: it is called on the
    event loop's thread then, which saves two switches of threads a chunk.
    """

    def open(self) -> Coverage:
        """Acquire resources; return what is durable already (empty if the sink cannot know).

        Called again after ``Superseded`` or ``SinkFailedError``.
        """

    def write(self, chunk: Chunk) -> None:
        """Take the rows, spans and diverted entries of ``chunk``; waiting here is how a slow sink stops the source."""

    def commit(self) -> Coverage:
        """Make all that was written durable and return the whole Coverage; with nothing written: a refresh.

        Raises Superseded or SinkFailedError: the roll is gone, ``open`` must follow.
        """

    def close(self) -> None:
        """Release resources; uncommitted rows are dropped. Called once, also after an error."""


@runtime_checkable
class LoggedSink(Sink, Protocol):
    """A sink with a log of its own: rows and positions are one commit, which is what makes a pipeline exactly once.

    Methods are called from the pipeline's thread like those of Sink; properties and ``interrupt`` are for any thread.
    """

    @property
    def exists(self) -> bool:
        """Whether there is a log already; known after ``open``, which does not create one."""

    @property
    def cluster(self) -> str:
        """What logs must be named by; known after ``open``: that of the log's creation, whatever the URL is now."""

    @property
    def needed_columns(self) -> frozenset[str]:
        """The columns that chunks must have."""

    @property
    def staged_bytes(self) -> int:
        """Bytes on disk that are not committed yet."""

    @property
    def unpooled_bytes(self) -> int:
        """About how much memory it holds outside of the pool: what encoders have gathered."""

    @property
    def too_many_files(self) -> bool:
        """Whether the roll should end early because it has so many files open."""

    @property
    def committed_files(self) -> int:
        """Files that this object has published so far."""

    @property
    def committed_bytes(self) -> int:
        """Their bytes."""

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds by stage so far: encode and write on all threads together, fsync."""

    @property
    def waiting(self) -> str | None:
        """Why a call takes its time, in words for the status; None if nothing holds it up."""

    def interrupt(self) -> None:
        """End a wait for space: the call that waits raises SinkFailedError."""

    def create_dataset(self) -> None:
        """Create the log, if there is none. Without this call the first ``commit`` does it."""

    def refresh(self) -> Coverage:
        """Read what other writers have committed meanwhile and return the whole Coverage; the open roll stays open."""

    def settle(self, floors: Mapping[Log, Position]) -> None:
        """Note with the next commit that a broker has confirmed all our acks up to these positions."""
