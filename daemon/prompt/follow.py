"""``follow``: records of topics as they come, a batch at a time, as a member of a group or without one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.errors import FastwireError

from ..client import Consumer, Delivery, TopicReader, connect
from ..config import parse_connection
from .decoding import Piece, decode_table, decoded, decoder_for
from .loopthread import LoopThread

if TYPE_CHECKING:
    from ..sinks.valuedecoder import ValueDecoder

__all__ = ["Batch", "follow"]

NOTHING = pa.RecordBatch.from_arrays([], names=[])


class Batch:
    """Records that have arrived together. ``commit`` acknowledges them, and all batches before.

    Anything that takes Arrow data takes it: ``polars.DataFrame(batch)``.
    """

    def __init__(self, records: pa.RecordBatch, dead_letters: Sequence[DeadLetter], commit: Callable[[], None]) -> None:
        self.records = records
        """The records as a ``pyarrow.RecordBatch``; there may be none beside dead letters."""
        self.dead_letters = dead_letters
        """Those that cannot be decoded: position, reason and payload."""
        self._commit = commit

    def commit(self) -> None:
        """Acknowledge these records with their dead letters, and all batches before; a second call does nothing.

        Raises ValueError without a group, and FastwireError once the iteration has ended.
        """
        self._commit()

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return int(self.records.num_rows)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, column: str) -> pa.Array:
        return self.records[column]

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        arrays: tuple[object, object] = self.records.__arrow_c_array__(requested_schema)
        return arrays


def follow(
    url: str,
    topic: str | Iterable[str] = (),
    *,
    group: str | None = None,
    start: str | datetime | Mapping[str, Any] = "earliest",
    pattern: str | None = None,
    columns: Sequence[str] | None = None,
    decode: str | Mapping[str, Any] | None = None,
    idle_s: float | None = None,
    memory: int | str = "1GiB",
    auth: Mapping[str, Any] | None = None,
    tls: Mapping[str, Any] | None = None,
    **source: Any,
) -> Generator[Batch, None, None]:
    """Yield the records of ``topic``, of several, or of all that match ``pattern``, as they come.

    With a ``group`` this is a member of it: the brokers keep what ``batch.commit()`` acknowledges, and divide the
    partitions among the members. ``start`` is then for partitions that the group has not read; without a group reading
    begins there, and nothing is left at the brokers.

    ``columns`` and ``decode`` are those of ``read``. ``idle_s`` ends the iteration when nothing has come for so many
    seconds, by default never. ``memory`` bounds what was received and not released, with a group. ``auth`` and ``tls``
    are tables of a configuration file, and ``source`` has more keys of a source, such as ``group_instance_id``.

    The membership and the connections end with the iteration: at its end, an error, Ctrl-C, and when the iterator is
    closed or dropped. Raises ConfigError and ValueError at once; what brokers refuse raises FastwireError in the
    iteration, a partition that cannot be read any more LogStopped.
    """
    keys = {name: value for name, value in (("auth", auth), ("tls", tls)) if value is not None}
    client = connect(url, **keys)
    table = decode_table(decode, columns, client.system)
    decoder = decoder_for(parse_connection({"url": url} | keys), table)
    built = None if table is not None else columns
    if group is None:
        if source or isinstance(start, Mapping):
            raise ValueError(f"{next(iter(source), 'a table of positions')} is for a consumer with a group")
        begin = start
        return _followed(
            _Feed(lambda: client.read(topic, begin, pattern=pattern), grouped=False), decoder, columns, idle_s
        )
    consumer = client.subscribe(topic, group, start=start, pattern=pattern, columns=built, memory=memory, **source)
    return _followed(_Feed(lambda: consumer, grouped=True), decoder, columns, idle_s)


_Opening = AbstractAsyncContextManager[Consumer] | AbstractAsyncContextManager[TopicReader]


class _Feed:
    """An open consumer or reader, in a thread with a loop of its own."""

    def __init__(self, make: Callable[[], "_Opening"], *, grouped: bool) -> None:
        self._make = make
        self._grouped = grouped
        self._thread: LoopThread | None = None
        self._consumer: Consumer | None = None
        self._chunks: AsyncIterator[Chunk] | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread("fastwire follow")
        try:
            self._thread.call(self._open(self._thread.stack))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None, "it is open"
        thread.close()

    def next(self, timeout_s: float | None) -> "Chunk | Delivery | None":
        """Return the next chunk; None if there is none in time."""
        assert self._thread is not None, "it is open"
        return self._thread.call(self._next(timeout_s))

    def commit(self, delivery: "Chunk | Delivery | None") -> None:
        """Acknowledge everything up to a delivery (None: nothing was received before)."""
        if not self._grouped:
            raise ValueError("there is no group, which could keep what is committed: name one by group=")
        if self._thread is None:
            raise FastwireError("the iteration has ended: what is not committed comes again")
        if isinstance(delivery, Delivery):
            self._thread.call(delivery.ack_to())

    async def _open(self, stack: AsyncExitStack) -> None:
        opened: Consumer | TopicReader = await stack.enter_async_context(self._make())
        if isinstance(opened, Consumer):
            self._consumer = opened
        else:
            self._chunks = aiter(opened)

    async def _next(self, timeout_s: float | None) -> "Chunk | Delivery | None":
        if self._consumer is not None:
            return await self._consumer.receive(timeout_s)
        assert self._chunks is not None, "it is open"
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._chunks)
        except TimeoutError:
            return None


def _followed(
    feed: _Feed, decoder: "ValueDecoder | None", columns: Sequence[str] | None, idle_s: float | None
) -> Generator[Batch, None, None]:
    with feed:
        before: Chunk | Delivery | None = None
        while (received := feed.next(idle_s)) is not None:
            chunk = received.chunk if isinstance(received, Delivery) else received
            letters = list(chunk.dead_letters)
            batch = pa.record_batch(chunk)
            runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()]
            chunk.release()
            pieces = [*decoded(decoder, batch, runs, columns)] if batch.num_rows else []
            del batch
            if not pieces and letters:
                pieces = [Piece(NOTHING, ())]
            # A batch that ends within a chunk acknowledges the chunks before.
            for number, (rows, more) in enumerate(pieces, 1):
                upto = received if number == len(pieces) else before
                yield Batch(rows, [*letters, *more], partial(feed.commit, upto))
                letters = []
            before = received
