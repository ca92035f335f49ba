"""A topic as an exactly-once sink, where its brokers drop records that they have stored already.

The positions are at ``path``, as at least once, and are committed after the brokers have confirmed the records. What a
killed daemon has sent and not committed is read again, and gets the same numbers, which are made of its positions: the
brokers tell the last one that they have stored.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import cast

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.columns.rows import Rows
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, format_position, positions_of

from ..runtime.errors import DatasetMismatchError
from ..runtime.logs import get_logger
from ..systems.sequenced import NotDeduplicated, SequencedWriter
from .topicoutlet import TopicOutlet
from .topicsink import MakeMemory, RememberingTopicSink

_log = get_logger("sink")


def numbers_of(rows: pa.RecordBatch, system: str) -> list[int]:
    """Return the number of each row of one log: a later record has a larger one. Raises ValueError without one."""
    numbers = [0] * rows.num_rows
    for name, bits in positions_of(system).sequence_columns:
        parts = [max(part, 0) for part in rows.column(name).to_pylist()]  # -1: not in a batch
        if parts and max(parts) >> bits:
            raise ValueError(f"no number: {name} is {max(parts)}, and {(1 << bits) - 1} is the largest")
        numbers = [number << bits | part for number, part in zip(numbers, parts, strict=True)]
    return numbers


class SequencedTopicSink(RememberingTopicSink):
    """A ``RememberingTopicSink`` that is exactly once: see the module."""

    exactly_once = True

    def __init__(
        self,
        make_writer: Callable[[], AbstractAsyncContextManager[SequencedWriter]],
        what: str,
        make_memory: MakeMemory,
        needed_columns: frozenset[str],
        **options: bool,
    ) -> None:
        super().__init__(TopicOutlet(make_writer, what), make_memory, needed_columns, **options)
        self._routed = False
        self._landed: set[Log] = set()  # logs of which some has landed before, and nothing was written since

    def open(self) -> Coverage:
        """See ``RememberingTopicSink.open``."""
        self._routed = False
        coverage = super().open()
        self._landed = {log for log in coverage.logs() if any(start != end for start, end in coverage.intervals(log))}
        return coverage

    def write(self, chunk: Chunk) -> None:
        """See ``TopicSink.write``. Raises DatasetMismatchError if records would go to other partitions than before."""
        if not self._routed:
            writer = self._writer
            try:
                writer.use(self._memory.routing(writer.routing))
            except ValueError as exc:
                raise DatasetMismatchError(
                    f"{self._outlet.what}: {exc}: records that are written again would go to other partitions, and be "
                    "there twice. Restore it, or begin with another path"
                ) from exc
            self._routed = True
        super().write(chunk)

    @property
    def _writer(self) -> SequencedWriter:
        return cast(SequencedWriter, self._outlet.writer)  # the outlet opens no other writers

    async def _give(self, log: Log, batch: pa.RecordBatch, rows: Rows) -> None:
        stream = f"fastwire-{self._memory.id}/{log.topic}/{log.partition}/{log.incarnation}"
        writer = self._writer
        await writer.write_numbered(rows, stream, numbers_of(batch, log.system))
        if log in self._landed:
            self._landed.remove(log)
            if stream in writer.unknown:
                _log.warning(
                    "the brokers of the topic have forgotten what was written of a partition: records that a killed "
                    "daemon has sent and not committed are there twice",
                    topic=self._outlet.what,
                    partition=str(log),
                    since=format_position(log.system, self._coverage_end(log)),
                )

    def _coverage_end(self, log: Log) -> Position:
        end = self._memory.coverage.end(log)
        assert end is not None, "some of it has landed"
        return end

    async def _flush(self) -> None:
        try:
            await super()._flush()
        except NotDeduplicated as exc:
            raise DatasetMismatchError(str(exc)) from exc
