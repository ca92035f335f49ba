"""The part of a fuzzed client that reads by a scanner and sends by a producer, whatever system it is."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, Generic, TypeVar

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.connection import ChunkConnection
from fastwire.errors import FastwireError
from fastwire.wire.pool import Pool

TopicPartition = tuple[str, int]  # topic and partition
MOST_MEMORY = 96 << 20

C = TypeVar("C", bound=ChunkConnection[Any, Any])
A = TypeVar("A")


class ScanningClient(ABC, Generic[C, A]):
    """A connection that comes and goes, the partitions that are read over it, and a producer.

    ``asked`` are the requests that the broker has and has not answered.
    """

    slots: Any
    producer: Any

    def __init__(self, places: Sequence[TopicPartition]) -> None:
        self.reached: Counter[str] = Counter()
        self.asked: list[A] = []
        self.pool = Pool(1 << 30)
        self.connection: C | None = None
        self.attached: set[int] = set()
        self._places = places
        self._begun: set[int] = set()
        self._sessions = count(1)
        self._next = [0] * len(places)  # the position at which the next span of each log begins
        self._now = 1000.0
        self._open: dict[int, tuple[str, Any]] = {}  # requests without an answer: what the answer is for
        self._tickets = count()
        self._undecided: set[object] = set()

    # --- of the system

    @abstractmethod
    def _forget(self) -> None:
        """Drop what was open on the connection that has been lost."""

    @abstractmethod
    def _event(self, connection: C, event: Any) -> None:
        """Handle an event of the connection."""

    # --- steps

    def _lose(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        self._take(connection)
        connection.close()
        self.asked.clear()
        self._open.clear()
        self._forget()

    def _tick(self, seconds: float) -> None:
        self._now += seconds
        self.producer.tick(self._now)
        connection: Any = self.connection
        if connection is None:
            return
        self._on(connection, connection.tick(self._now))
        if self.connection is not None and self.connection.open_since is not None:
            self._take(self.connection)

    def _produce(self, record: Any) -> None:
        if self.producer.failure is None:
            ticket = next(self._tickets)
            self._undecided.add(ticket)
            self.producer.send(record, ticket, self._now)

    # --- what the broker says

    def _feed(self, data: bytes) -> None:
        connection = self.connection
        try:
            while data and connection is not None and connection is self.connection:
                view = connection.get_buffer(-1)
                size = min(len(view), len(data))
                view[:size] = data[:size]
                view.release()
                data = data[size:]
                self._on(connection, connection.receive(size, self._now))
                while connection is self.connection and connection.more:
                    self._on(connection, connection.receive(0, self._now))
        except FastwireError:
            self.reached["broken"] += 1
            self._lose()

    def _on(self, connection: C, events: Iterable[Any]) -> None:
        for event in events:
            if connection is self.connection:
                self._event(connection, event)

    def _take(self, connection: C) -> None:
        chunk = connection.take_chunk()
        if chunk is not None:
            self._landed(chunk)

    def _landed(self, chunk: Chunk) -> None:
        """Each log's spans follow one upon the other, and hold exactly the rows between their ends, in order."""
        spans = chunk.spans()
        self.reached["rows"] += chunk.rows
        self.reached["dead letters"] += len(chunk.dead_letters)
        assert sum(span.rows for span in spans) == chunk.rows
        found: dict[TopicPartition, list[int]] = {place: [] for place in self._places}
        if chunk.rows:
            batch = pa.record_batch(chunk)
            batch.validate(full=True)
            columns = (batch[name].to_pylist() for name in ("topic", "partition", "offset"))
            for topic, partition, offset in zip(*columns, strict=True):
                found[topic, partition].append(offset)
        for index, place in enumerate(self._places):
            offsets = found[place]
            ours = [span for span in spans if (span.log.topic, int(span.log.partition)) == place]
            assert offsets == sorted(set(offsets)), f"{place}: {offsets}"
            for span in ours:
                assert span.start.a == self._next[index] < span.end.a, f"{place}: {span} follows {self._next[index]}"
                inside = [offset for offset in offsets if span.start.a <= offset < span.end.a]
                assert len(inside) == span.rows, f"{place}: {span} holds {inside}"
                self._next[index] = span.end.a
        chunk.release()

    # --- what must hold

    def _check(self) -> None:
        for outcome in self.producer.take_outcomes():
            self.reached["stored" if outcome.error is None else "not stored"] += 1
            for ticket in outcome.tickets:
                assert ticket in self._undecided, f"record {ticket} has two outcomes"
                self._undecided.discard(ticket)
        assert self.producer.weight >= 0
        assert not self.producer.idle or self.producer.weight == 0

    def finish(self) -> None:
        """Everything has an end: each record its outcome, all memory given back."""
        self._lose()
        self.producer.fail(FastwireError("the end"))
        self._check()
        assert not self._undecided, f"{len(self._undecided)} records without an outcome"
        assert self.pool.used == 0, f"{self.pool.used} bytes are still out"
        assert self.pool.peak <= MOST_MEMORY, f"{self.pool.peak} bytes were out at once"
