"""The sink of a topic whose configuration names no delivery: exactly once where the brokers allow it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastwire.coverage import Coverage
from fastwire.errors import causes
from fastwire.position import Log, Position

from ..runtime.errors import DatasetMismatchError, SinkFailedError, Superseded
from ..runtime.logs import get_logger
from ..systems.ledger import LedgerRefused
from .topicledger import LedgerTopicSink
from .topicsink import TopicSink

_log = get_logger("sink")


class DefaultTopicSink(LedgerTopicSink):
    """A ``LedgerTopicSink`` that gives way to ``plain``, at least once, if the brokers refuse it for good.

    That is decided before the first record is read, and holds for the life of the process: :attr:`chosen` is the sink
    to use from then on. Brokers that are away decide nothing, they are waited for.
    """

    exactly_once = False
    follows_group = True

    def __init__(self, plain: TopicSink, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.chosen: TopicSink | None = None
        """The sink to open in place of this one, which is closed then."""
        self._plain = plain
        self._decided = False

    def open(self) -> Coverage:
        """See ``LedgerTopicSink.open``. After a refusal :attr:`chosen` is set, and the Coverage is empty."""
        try:
            with self._deciding():
                coverage = super().open()
                if not self._decided:
                    self._prove()
                return coverage
        except Superseded:
            if self.chosen is None:
                raise
            return Coverage()

    def claim(self, cursors: Mapping[Log, Position | None], cluster_id: str = "") -> Coverage:
        """See ``LedgerTopicSink.claim``. Raises Superseded also if :attr:`chosen` is to be opened."""
        with self._deciding():
            return super().claim(cursors, cluster_id)

    def identify(self, cluster_id: str) -> None:
        """See ``LedgerTopicSink.identify``, and ``claim``."""
        with self._deciding():
            super().identify(cluster_id)
        if not self._decided:
            self._decided = self.exactly_once = True
            _log.info("delivery is exactly once, for readers with isolation.level=read_committed")

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Choose the other sink if the code inside is refused before anything was written. Raises Superseded then."""
        try:
            yield
        except (SinkFailedError, DatasetMismatchError) as exc:
            if self._decided or not _is_refusal(exc):
                raise
            _log.warning(
                "delivery is at least once: records that are sent and not yet committed come again after a crash",
                because=str(exc),
            )
            self.close()
            self.chosen = self._plain
            raise Superseded(f"{self._outlet.what} is written at least once") from exc

    def _prove(self) -> None:
        """Show that this client may commit and read an entry, and leave none. Raises as ``commit``."""
        key = self._positions.proof(self._ledger.name)
        self._calling(lambda: self._ledger.commit({key: None}))
        if not self._positions.coverage.logs():  # nothing but an entry shows the right to read
            self._calling(self._read)


def _is_refusal(error: BaseException) -> bool:
    """Return True if the brokers let this client have no transactions, or the positions are those of another source."""
    return any(isinstance(each, LedgerRefused | DatasetMismatchError) for each in causes(error))
