"""``format("fastwire")``: the data source for batch and streaming queries.

What runs where: ``schema`` and the making of readers in short-lived workers, offsets and commits in one process of the
driver, ``read`` in the executors on a copy of the reader that was pickled before any offset was known. So a reader
keeps the options as they were given and nothing else that ``read`` needs; connections are made when first used.
"""

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from fastwire.errors import FastwireError
from fastwire.position import Position, format_position, positions_of

from .batchplan import pieces, share
from .broker import Broker
from .dialects import dialect_of
from .landed import LandedEnds
from .offsets import Offsets, read_offsets
from .options import Options, Where, parse_options
from .ranges import DataLossError, QueryPartition, Range, Witness
from .systems import open_broker, read_range
from .witness import Witnesses

try:  # PySpark 4.1 and later
    from pyspark.sql.datasource import EqualTo, Filter, In
except ImportError:  # 4.0 offers no filters
    Filter = object
    EqualTo = In = None

try:  # PySpark 4.2 and later
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1 know no limits
    ReadLimit = object
    ReadAllAvailable = ReadMaxBytes = ReadMaxRows = None

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the base class that PySpark 4.0 and 4.1 lack."""


KNOWS_LIMITS = ReadMaxRows is not None  # Spark 4.2 and later

COMMIT_AGAIN_S = 10.0  # after one that failed, before the same is tried again

logger = logging.getLogger("fastwire.spark")


_SHOWN = 10  # partitions in a message


def _some(partitions: Sequence[QueryPartition]) -> str:
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return ", ".join(map(str, partitions[:_SHOWN])) + more


class RangePartition(InputPartition):
    """The input of a task."""

    def __init__(self, part: Range) -> None:
        super().__init__(str(part))
        self.part = part


class _Reader:
    """The common base of batch and stream readers."""

    def __init__(self, given: Mapping[str, str], streaming: bool) -> None:
        self._given = dict(given)
        self._streaming = streaming
        self._parsed: Options | None = None
        self._open: Broker[Any] | None = None
        self._said: set[str] = set()
        self._options  # noqa: B018 - wrong options are refused here, where Spark shows the error to the user

    def __getstate__(self) -> dict[str, Any]:
        """Travels without what was made on the way."""
        return self.__dict__ | {"_parsed": None, "_open": None}

    @property
    def _options(self) -> Options:
        if self._parsed is None:
            self._parsed = parse_options(self._given, streaming=self._streaming)
        return self._parsed

    @property
    def _broker(self) -> Broker[Any]:
        if self._open is None:
            self._open = open_broker(self._options)
        return self._open

    @property
    def pushes_filters(self) -> bool:
        """True if filters of the query exclude partitions from reading."""
        return self._options.pushes_filters

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in a task. Spark puts a partition of its own where there is none: it has no rows."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(self._options, partition.part, repr(sorted(self._given.items())))

    def _existing(self) -> list[QueryPartition]:
        """Return the partitions of the query. Raises FastwireError if a topic or a partition does not exist."""
        broker, options = self._broker, self._options
        partitions = broker.partitions()
        missing = set(options.topics) - broker.topics()
        missing |= {str(each) for each in partitions if each not in broker.heads(partitions)}
        if missing:
            raise FastwireError(f"{', '.join(sorted(missing))}: there is no such topic")
        if not partitions:
            logger.warning("subscribePattern %s matches no topic now", self._given.get("subscribePattern"))
        return partitions

    def _resolve(self, where: Where, partitions: Sequence[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the present positions for ``where``, of partitions that exist.

        Raises FastwireError if it names partitions that are not read, and if it names some of those of a stream: a
        stream begins at the end by default, which would skip what is in the others.
        """
        named = {*(where.positions or ()), *(where.times or ())}
        if self._streaming and named and (unnamed := sorted(set(partitions) - named)):
            option = "startingOffsets" if where.times is None else "startingOffsetsByTimestamp"
            rule = "-2 is the earliest, -1 the latest" if where.times is None else "0 is the earliest"
            raise FastwireError(
                f"{option} does not name {_some(unnamed)}: a stream has to know where each partition begins. Name them "
                f"({rule})"
            )
        broker = self._broker
        heads = broker.heads(partitions)
        found: dict[QueryPartition, Position] = {}
        first = []
        for partition in heads:
            at: Any = where.kind
            if where.positions is not None:
                at = where.positions.get(partition, at)
            time_ms = where.time_ms if at == "time" else None
            if where.times is not None:
                time_ms = where.times.get(partition)
            if time_ms is not None:
                at = broker.at_time(partition, time_ms)
                if at is None:
                    at = self._no_record_that_young(where, partition, time_ms)
            if at == "earliest":
                first.append(partition)
            else:
                found[partition] = heads[partition] if at == "latest" else at
        if first:
            found |= broker.beginnings(first)
        if others := sorted(named - set(partitions)):
            raise FastwireError(f"{_some(others)}: named by an option, and not read by this query")
        return found

    def _no_record_that_young(self, where: Where, partition: QueryPartition, time_ms: int) -> str:
        if where is self._options.starting and self._options.no_record_that_young == "error":
            raise FastwireError(
                f"{partition} has no record of {time_ms} or later; "
                "startingOffsetsByTimestampStrategy=latest begins at its end"
            )
        return "latest"

    def _ranges(
        self, starts: Mapping[QueryPartition, Position], ends: Mapping[QueryPartition, Position]
    ) -> list[RangePartition]:
        """Return the ranges between two positions of each partition, split as the options say; none for empty ones."""
        options, broker = self._options, self._broker
        found: list[RangePartition] = []
        wanted = {}
        for partition, end in ends.items():
            if partition not in starts:
                continue
            start = starts[partition]
            if self._before(end, start):
                self._lost(
                    f"{partition}: the end {self._text(end)} lies before the start {self._text(start)}: "
                    "it was made again, or cut"
                )
            elif self._before(start, end):
                wanted[partition] = start, end
        rows = {partition: broker.rows(partition, start, end) for partition, (start, end) in wanted.items()}
        cut = pieces(rows, options.min_partitions, options.max_partition_rows)
        for partition, (start, end) in wanted.items():
            found += map(RangePartition, broker.ranges(partition, start, end, cut[partition]))
        return found

    def _before(self, one: Position, other: Position) -> bool:
        return positions_of(self._options.system).precedes(one, other)

    def _text(self, position: Position) -> str:
        return format_position(self._options.system, position)

    def _incarnations(self, partitions: Iterable[QueryPartition]) -> dict[str, str]:
        """Return the incarnations of the partitions' topics, as far as the system knows them."""
        found = {topic: self._broker.incarnation(topic) for topic in {partition.topic for partition in partitions}}
        return {topic: text for topic, text in found.items() if text}

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}; with failOnDataLoss=false this is logged and the query goes on")
        if what not in self._said:  # Spark asks a hundred times a second
            self._said.add(what)
            logger.warning("%s; the query goes on without it", what)

    def _gone(self, partitions: Sequence[QueryPartition]) -> None:
        if partitions:
            self._lost(f"{', '.join(map(str, sorted(partitions)))}: does not exist any more")


class BatchReader(_Reader, DataSourceReader):
    """One read from a beginning to an end."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given, streaming=False)

    def partitions(self) -> list[RangePartition]:
        """Return the ranges of the query, resolved now."""
        try:
            partitions = self._wanted(self._existing())
            starts = self._resolve(self._options.starting, partitions)
            return self._ranges(starts, self._resolve(self._options.ending, partitions))
        finally:
            self._broker.close()
            self._open = None

    def _wanted(self, partitions: list[QueryPartition]) -> list[QueryPartition]:
        return partitions


class FilteringBatchReader(BatchReader):
    """A batch reader that leaves out topics and partitions which a filter excludes.

    A class of its own, because Spark refuses any reader that has ``pushFilters`` while its setting for it is off.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self._allowed: list[tuple[str, frozenset[Any]]] = []

    def pushFilters(self, filters: Iterable[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Keep in mind what narrows the partitions; Spark applies all filters to the rows as well."""
        for each in filters:
            if isinstance(each, EqualTo | In) and each.attribute in (("topic",), ("partition",)):
                values = (each.value,) if isinstance(each, EqualTo) else each.value
                self._allowed.append((each.attribute[0], frozenset(values)))
            yield each

    def _wanted(self, partitions: list[QueryPartition]) -> list[QueryPartition]:
        return [
            partition
            for partition in partitions
            if all(
                (partition.topic if name == "topic" else partition.index) in values for name, values in self._allowed
            )
        ]


def batch_reader(given: Mapping[str, str]) -> BatchReader:
    """Return the reader for the options."""
    reader = BatchReader(given)
    return FilteringBatchReader(given) if reader.pushes_filters else reader


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One object lives in the driver as long as the query runs; its copies in the executors only read.

    Works with Spark 4.0 and 4.1, which pass no arguments to ``latestOffset`` and know no limits.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given, streaming=True)
        self._initial: dict[str, Any] | None = None
        self._at: dict[str, Any] | None = None  # the end that was planned last: where Spark 4.0 and 4.1 are
        self._heads: dict[QueryPartition, Position] = {}
        self._witnesses = Witnesses()
        self._ends: LandedEnds | None = None
        self._until: dict[QueryPartition, Position] | None = None  # where a query that reads what is there now ends
        self._delayed_since: float | None = None
        self._untold: Mapping[QueryPartition, Position] | None = None  # what brokers would not take
        self._tell_at = 0.0

    # --- offsets

    @property
    def _landed(self) -> LandedEnds:
        """The ends of batches that the tables of the query have; its driver alone sees them."""
        if self._ends is None:
            self._ends = LandedEnds(self._options.landed, self._options.system)
        return self._ends

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first offset of a new query. Spark calls it twice and needs the same answer."""
        if self._initial is None and (landed := self._landed.beginning()) is not None:
            self._initial = landed.document()
        if self._initial is None:
            positions = self._resolve(self._options.starting, self._existing())
            unheld = dialect_of(str(self._options.connection.url)).unheld
            if unheld and not self._options.subscription:
                logger.warning(unheld)
            made = self._incarnations(positions)
            # The first batch may be empty: then this stands in the checkpoint as its end.
            self._initial = Offsets(self._options.system, positions, init=positions, incarnations=made).document()
        return self._initial

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limits of one batch."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read what is there now, in as many batches as the limits ask for, and end."""
        self._until = self._broker.heads(self._broker.partitions())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the last known end of the topics; Spark derives the lag from it."""
        return Offsets(self._options.system, self._heads).document() if self._heads else None

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:  # noqa: N802 - Spark's name
        """The end of the next batch; ``start`` itself if there is nothing new.

        What lies before ``start`` has been committed by Spark, so the brokers need not keep it.
        """
        if start is None:
            start = self._at if self._at is not None else self.initialOffset()
        system = self._options.system
        begun = read_offsets(start, system)
        if (landed := self._landed.behind(begun, first=start == self._initial)) is not None:
            return landed.document()
        self._commit(begun.positions)
        heads = self._now(begun.positions)
        shorter = self._shorter(begun.positions)
        exchanged = self._exchanged(begun.witnesses)
        remade = self._remade(begun.incarnations) | shorter | exchanged
        known = {each: position for each, position in begun.positions.items() if each.topic not in remade}
        starts = {**self._broker.beginnings(heads.keys() - known.keys()), **known}
        news = self._news(starts, heads)
        ends = self._limited(starts, news, limit) if news else {}
        if all(ends[partition] == starts[partition] for partition in ends):
            return start
        topics = {partition.topic for partition in ends}
        # A topic that was made again begins anew with all its partitions.
        anew = {each: starts[each] for each in heads if each.topic in remade & topics and each in starts}
        positions = {**begun.positions, **anew, **ends}
        now = {topic: text for topic, text in self._incarnations(positions).items() if topic in topics}
        # Where brokers give none, another log of the same name has the next number.
        counted = {
            topic: str(int(begun.incarnations.get(topic, "0")) + 1)
            for topic in (shorter | exchanged) & topics - now.keys()
        }
        made = {**self._incarnations(positions), **begun.incarnations, **now, **counted}
        kept = {topic: one for topic, one in begun.witnesses.items() if topic not in remade}
        known_by = {
            **kept,
            **self._witnesses.take(self._broker, ends, [each for each in ends if ends[each] != starts[each]]),
        }
        if start == self._initial:
            init = {each: starts[each] if each in ends else position for each, position in positions.items()}
            return Offsets(system, positions, init=init, incarnations=made, witnesses=known_by).document()
        new = {each: starts[each] for each in positions if each not in begun.positions or each in anew}
        return Offsets(system, positions, new=new, incarnations=made, witnesses=known_by).document()

    def _now(self, begun: Mapping[QueryPartition, Position]) -> dict[QueryPartition, Position]:
        """Return the ends of the partitions, or the last positions of the query if they come first."""
        heads = self._broker.heads(sorted({*self._broker.partitions(), *begun}), begun)
        self._heads = {**begun, **heads}
        self._gone([partition for partition in begun if partition not in heads])
        if self._until is None:
            return heads
        until = self._until
        return {
            each: head if self._before(head, until[each]) else until[each]
            for each, head in heads.items()
            if each in until
        }

    def _remade(self, begun: Mapping[str, str]) -> set[str]:
        """Return the topics that were deleted and created again since then."""
        now = {topic: self._broker.incarnation(topic) for topic in begun}
        remade = {topic for topic, text in now.items() if text and text != begun[topic]}
        if remade:
            self._lost(f"{', '.join(sorted(remade))}: was deleted and made again")
        return remade

    def _exchanged(self, begun: Mapping[str, Witness]) -> set[str]:
        """Return the topics whose logs hold other records than those that were read."""
        exchanged = self._witnesses.others(self._broker, begun)
        for one in exchanged:
            self._lost(
                f"{one.partition} has another record at {self._text(one.position)} than the one that was read there: "
                "the option servers names another cluster than before, or the topic was made again"
            )
        return {one.partition.topic for one in exchanged}

    def _shorter(self, begun: Mapping[QueryPartition, Position]) -> set[str]:
        """Return the topics of logs that end before what was read, where only another log of that name can."""
        if dialect_of(str(self._options.connection.url)).truncates:
            return set()
        shorter = [each for each, start in begun.items() if self._before(self._heads[each], start)]
        for partition in shorter:
            self._ends_early(partition, self._heads[partition], begun[partition])
        return {partition.topic for partition in shorter}

    def _ends_early(self, partition: QueryPartition, head: Position, read: Position) -> None:
        end, before = self._text(head), self._text(read)
        self._lost(f"{partition} ends at {end}, before {before}, up to where it was read")

    def _news(
        self, starts: Mapping[QueryPartition, Position], heads: Mapping[QueryPartition, Position]
    ) -> dict[QueryPartition, Position]:
        """Return the ends of the partitions that have new records."""
        found = {}
        for partition, head in heads.items():
            start = starts.get(partition)
            if start is None:
                continue  # it went away between two questions
            if self._before(head, start) and self._until is None:
                self._ends_early(partition, head, start)
            elif self._before(start, head):
                found[partition] = head
        return found

    def _limited(
        self, starts: Mapping[QueryPartition, Position], heads: Mapping[QueryPartition, Position], limit: Any
    ) -> dict[QueryPartition, Position]:
        """Return the end of the next batch."""
        options, broker = self._options, self._broker
        backlog = {partition: broker.rows(partition, starts[partition], head) for partition, head in heads.items()}
        if self._too_few(sum(backlog.values())):
            return dict(starts)
        if ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable):
            return dict(heads)
        most = [each for each in (options.max_rows,) if each is not None]
        if options.max_bytes is not None:
            most.append(max(1, int(options.max_bytes / broker.bytes_per_row())))
        if not most or sum(backlog.values()) <= min(most):
            return dict(heads)
        shares = share(min(most), backlog)
        return {
            partition: broker.limited(partition, starts[partition], head, shares[partition])
            for partition, head in heads.items()
        }

    def _too_few(self, rows: int) -> bool:
        """Return True to wait for more records; never in a query that has an end."""
        options = self._options
        now = time.monotonic()
        if options.min_rows is None or self._until is not None or rows >= options.min_rows:
            self._delayed_since = None
            return False
        if self._delayed_since is None:
            self._delayed_since = now
        if now - self._delayed_since >= options.max_delay_s:
            self._delayed_since = None
            return False
        return True

    # --- batches

    def partitions(self, start: Any, end: Any) -> list[RangePartition]:
        """Return the ranges of one batch; they are the same whenever it is planned again."""
        self._at = end
        system = self._options.system
        ended = read_offsets(end, system)
        begun = read_offsets(start, system)
        if start == end:
            return []
        if start == self._initial and ended.init is None:
            return []  # an empty first batch, written down before such ends had ``init``: the beginning has moved
        starts = ended.begun(begun)
        if starts.keys() != ended.positions.keys():
            raise DataLossError("a batch has partitions at one of its ends only: the checkpoint was changed")
        heads = self._broker.heads(sorted(ended.positions), ended.positions)
        gone = [
            partition
            for partition, position in ended.positions.items()
            if partition not in heads and starts[partition] != position
        ]
        self._gone(gone)
        moved = {each.topic for each in heads if starts[each] != ended.positions[each]}
        remade = self._remade({topic: text for topic, text in ended.incarnations.items() if topic in moved})
        remade |= self._exchanged({topic: one for topic, one in ended.witnesses.items() if topic in moved})
        left = {each: ended.positions[each] for each in heads if each.topic not in remade}
        return self._ranges(starts, left)

    def commit(self, end: Any) -> None:
        """Note that Spark has committed everything up to ``end``."""
        self._commit(read_offsets(end, self._options.system).positions)

    def _commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        now = time.monotonic()
        if positions == self._untold and now < self._tell_at:
            return
        try:
            self._broker.commit(positions)
            self._untold = None
        except FastwireError as exc:
            if self._options.fail_on_commit_error:
                raise
            # The next commit says it again, and more.
            logger.warning("the brokers were not told what is committed: %s", exc)
            self._untold, self._tell_at = positions, time.monotonic() + COMMIT_AGAIN_S

    def stop(self) -> None:
        """Close the connections. Spark does not always call this, and nothing depends on it."""
        if self._open is not None:
            self._open.close()
            self._open = None
        if isinstance(sys.exc_info()[1], EOFError) and "pyspark.daemon" in sys.modules:
            # Spark has closed the pipe to this process of its own, because the query has ended. Its process would write
            # the EOFError into the pipe, and the failure of that on stderr.
            os._exit(0)
