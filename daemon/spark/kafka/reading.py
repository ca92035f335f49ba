"""Reading a range of offsets [S, E) of one partition the same way each time (kafka 9, 13).

Offsets are ours to choose, so nothing is left behind at the broker, and any number of attempts may read the same range
at the same time. The end is reached when the *next* offset is E: compaction, markers and aborted transactions leave
holes, so the record at E - 1 may never come. What tells a loss:

* The topic of that name is another one by its id.
* The epoch in which E was planned ends before E in the leader's log: it was cut by an unclean election.
* S lies before the beginning of the log: retention was faster.
* The log ends before E and stays so.
* A batch that cannot be decoded.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.fetch import Target
from fastwire.kafka.question import EARLIEST, LATEST
from fastwire.kafka.slot import Told
from fastwire.position import Position, format_position

from ...endpoint import LinkLost
from ...kafka.refusal import is_for_good
from ..blocking import TURN_S
from ..ranges import DataLossError, Partition, Range
from ..reading import RangeReader, ReadingRules, TryAgainError
from .client import Client, incarnation_of
from .link import Link

__all__ = ["KafkaRangeReader", "Records", "place_of"]


class TopicGoneError(FastwireError):
    """There is no such topic, or it has no such partition."""


# A new leader may take a moment to say how far its log can be read.
SHORT_S = 5.0


def place_of(partition: Partition) -> tuple[str, int]:
    """The partition as it stands on the wire."""
    return partition.topic, partition.index


class Records:
    """What comes from ``start`` on, over the connection to the partition's leader."""

    def __init__(self, client: Client, partition: Partition, start: Position) -> None:
        topic, number = place_of(partition)
        known = client.metadata.topics[topic]
        self._client = client
        self._index = client.log_index(partition, incarnation_of(known))
        self.link: Link = client.leader((topic, number))
        session = next(client.sessions)
        client.slots.attach(self._index, start, session)
        epoch = client.metadata.leader(topic, number).epoch
        self.link.corrupt = None
        self.link.fetcher.add(Target(self._index, topic, known.topic_id, number, epoch, session))

    @property
    def position(self) -> Position:
        """What comes next."""
        return self._client.slots.position(self._index)

    @property
    def told(self) -> Told:
        """What the last answer said of the partition."""
        return self._client.slots.told(self._index)

    def pump(self) -> bool:
        """Ask, and take what has come, waiting a moment for it; whether an answer is through.

        Raises LinkLost, BrokerError for what the leader says of the partition, DataLossError for a log that cannot be
        read on.
        """
        link = self.link
        before = link.answers
        link.fetch()
        link.pump(TURN_S)
        if link.corrupt is not None:
            batch = link.corrupt
            at = format_position("kafka", batch.position)
            raise DataLossError(f"the log cannot be read from {at} on: {batch.reason}: {batch.detail}")
        if link.answers == before:
            return False
        if self.told.error:
            raise BrokerError(self.told.error, str(link))
        return True

    def take_full(self) -> Iterator[Chunk]:
        """Chunks that are full."""
        while self.link.chunks:
            yield self.link.chunks.popleft()

    def take_all(self) -> Iterator[Chunk]:
        """What has come so far."""
        yield from self.take_full()
        if chunk := self.link.connection.take_chunk():
            yield chunk

    def close(self) -> None:
        """What is under way for this partition belongs to nobody."""
        self._client.slots.detach(self._index)
        self.link.fetcher.drop(self._index)
        self.link.chunks.clear()
        self.link.scanner.drop_chunk()


class KafkaRangeReader(RangeReader):
    """A range of Kafka's."""

    def __init__(self, client: Client, part: Range, rules: ReadingRules, stopped: Callable[[], bool]) -> None:
        super().__init__(part, rules, stopped)
        self._client = client
        self._place = place_of(part.partition)

    def _is_missing(self, error: FastwireError) -> bool:
        return isinstance(error, TopicGoneError)

    def _is_for_good(self, error: FastwireError) -> bool:
        return is_for_good(error)

    def _attempt(self) -> Iterator[pa.RecordBatch]:
        if not self._is_ours():
            return
        records = Records(self._client, self._part.partition, self._at)
        self._link = records.link
        failure: FastwireError | None = None
        try:
            short_since: float | None = None
            while records.position.a < self._end.a and not self._stopped():
                before = records.position.a
                try:
                    answered = records.pump()
                except FastwireError as exc:
                    failure = exc
                    break
                now = time.monotonic()
                if records.position.a > before:
                    self._alive_at, short_since = now, None
                    for chunk in records.take_full():
                        yield from self._hand_on(chunk)
                elif answered:
                    short_since = now if short_since is None else short_since
                    if now - short_since >= min(SHORT_S, self._rules.patience_s):
                        self._falls_short(records.position.a)
                elif now - self._alive_at >= self._rules.patience_s:
                    failure = LinkLost("the broker is silent")
                    break
            # What came is sound, whatever has ended the reading.
            for chunk in records.take_all():
                yield from self._hand_on(chunk)
        finally:
            self._link = None
            records.close()
        if failure is not None:
            self._failed(failure)

    def _is_ours(self) -> bool:
        """Whether the leader's log is the one that the range was planned in, and there is something left to read."""
        client, part = self._client, self._part
        name = part.partition.topic
        client.refresh([name])
        topic = client.topic(name)
        if topic is None or part.partition.index not in topic.leaders:
            raise TopicGoneError(str(part.partition))
        incarnation = incarnation_of(topic)
        if part.incarnation and incarnation and part.incarnation != incarnation:
            self._lost("the topic was deleted and made again")
            return False
        ends = client.epoch_end(self._place, self._end.b)
        if 0 <= ends < self._end.a:
            self._falls_short(ends)
        return self._at.a < self._end.a

    def _failed(self, error: FastwireError) -> None:
        """Reading has ended like this at ``_at``: raise what is to be made of it."""
        if isinstance(error, DataLossError):
            raise DataLossError(f"{self._part}: {error}")
        if not isinstance(error, BrokerError) or error.code != Code.OFFSET_OUT_OF_RANGE:
            raise error
        # The log begins behind the offset that was asked for, or ends before it.
        at = self._at.a
        begin, end = (self._client.offsets({self._place: each})[self._place][0] for each in (EARLIEST, LATEST))
        if begin > at:
            self._lost(f"the log begins at {begin}, behind {at}: what lay before was deleted")
            self._at = Position(min(begin, self._end.a), -1)
        elif end < at:
            self._falls_short(end)
        raise TryAgainError

    def _falls_short(self, end: int) -> None:
        self._lost(f"the log ends at {end}, before the range does")
        self._end = Position(end, -1)

    def _hand_on(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The rows of ``chunk`` that belong to the range."""
        for letter in chunk.diverted:
            if int.from_bytes(letter.payload[:8]) < self._end.a:
                at = format_position("kafka", letter.position)
                self._lost(f"the batch before {at} cannot be decoded: {letter.reason}")
        if chunk.rows:
            batch = pa.record_batch(chunk)
            offsets = batch.column("offset")
            rows = chunk.rows
            if offsets[rows - 1].as_py() >= self._end.a:
                rows = bisect_left(range(rows), self._end.a, key=lambda row: offsets[row].as_py())
            if rows:
                yield batch.slice(0, rows)
        spans = chunk.spans()
        if spans:
            self._at = spans[-1].end
