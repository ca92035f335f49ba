"""The sink of a topic whose configuration names no delivery: exactly once where the brokers allow it."""

from collections.abc import Iterable

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.errors import causes

from ..runtime.errors import DatasetMismatchError, SinkFailedError
from ..runtime.logs import get_logger
from ..systems.ledger import LedgerRefused
from .topicledger import LedgerTopicSink
from .topicsink import TopicSink

__all__ = ["DefaultTopicSink"]

_log = get_logger("sink")


class DefaultTopicSink:
    """Opens the sink that is exactly once, or the one that is at least once if the brokers refuse the first for good.

    The first ``open`` decides for the life of the process: :attr:`chosen` is the sink to use from then on. Brokers that
    are away decide nothing, they are waited for.
    """

    exactly_once = False

    def __init__(self, ledger: LedgerTopicSink, plain: TopicSink) -> None:
        self.chosen: TopicSink | None = None
        """The sink that ``open`` has decided for."""
        self.needed_columns = ledger.needed_columns
        self._ledger = ledger
        self._plain = plain
        self._open: TopicSink = ledger

    @property
    def waiting(self) -> str | None:
        """See ``TopicSink.waiting``."""
        return self._open.waiting

    @property
    def threads(self) -> Iterable[int | None]:
        """See ``LedgerTopicSink.threads``."""
        return self._ledger.threads

    def interrupt(self) -> None:
        """See ``TopicSink.interrupt``."""
        self._open.interrupt()

    def open(self) -> Coverage:
        """Decide, and open the chosen sink; raises what that one raises."""
        if self._open is self._ledger:
            try:
                coverage = self._ledger.open()
                self._ledger.prove()
            except (SinkFailedError, DatasetMismatchError) as exc:
                if not _is_refusal(exc):
                    raise
                _log.warning(
                    "delivery is at least once: records that are sent and not yet committed come again after a crash",
                    because=str(exc),
                )
                self._ledger.close()
                self._open = self._plain
            else:
                _log.info("delivery is exactly once, for readers with isolation.level=read_committed")
                self.chosen = self._ledger
                return coverage
        coverage = self._plain.open()
        self.chosen = self._plain
        return coverage

    def write(self, chunk: Chunk) -> None:
        """See ``Sink.write``."""
        self._open.write(chunk)

    def commit(self) -> Coverage:
        """See ``Sink.commit``."""
        return self._open.commit()

    def close(self) -> None:
        """Close the sink that is open."""
        self._open.close()


def _is_refusal(error: BaseException) -> bool:
    """Return True if the brokers let this client have no transactions, or the positions are those of another source."""
    return any(isinstance(each, LedgerRefused | DatasetMismatchError) for each in causes(error))
