"""``follow``: records of topics as they come, a batch at a time, as a member of a group or without one."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter

from ..client import Delivery, connect
from ..sinks.recordrows import taken
from ..systems.registry import reading, system_named
from .decoding import Piece, decode_table, decoded, decoder_for
from .feed import Feed

if TYPE_CHECKING:
    from ..sinks.valuedecoder import ValueDecoder

NAME = "fastwire follow"
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

        Brokers acknowledge chunks. Where ``decode`` makes several batches of one, which is so where the schema of its
        values changes, each but the last one acknowledges only the chunks before: its records come again if the member
        ends before the last one is committed.

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
    decoder = decoder_for(client.connection, table)
    built = None if table is not None else columns
    if group is not None:
        consumer = client.subscribe(topic, group, start=start, pattern=pattern, columns=built, memory=memory, **source)
        return _followed(Feed(NAME, lambda: consumer, aiter), decoder, columns, idle_s, grouped=True)
    if source or isinstance(start, Mapping):
        raise ValueError(f"{next(iter(source), 'a table of positions')} is for a consumer with a group")
    chosen = system_named(client.system).chosen(topic, pattern, start)
    opening = partial(reading, client.connection, *chosen, None if built is None else frozenset(built))
    return _followed(Feed(NAME, opening, aiter), decoder, columns, idle_s, grouped=False)


def _followed(
    feed: Feed[Any, Any],
    decoder: "ValueDecoder | None",
    columns: Sequence[str] | None,
    idle_s: float | None,
    *,
    grouped: bool,
) -> Generator[Batch, None, None]:
    with feed:
        before: Delivery | None = None
        while (received := feed.next(idle_s)) is not None:
            chunk: Chunk = received.chunk if grouped else received
            letters = list(chunk.dead_letters)
            batch, runs = taken(chunk)
            pieces = [*decoded(decoder, batch, runs, columns)] if batch.num_rows else []
            del batch
            if not pieces and letters:
                pieces = [Piece(NOTHING, ())]
            # A chunk is acknowledged as a whole: by the last of its batches.
            for number, (rows, more) in enumerate(pieces, 1):
                upto = received if number == len(pieces) else before
                yield Batch(rows, [*letters, *more], partial(_commit, feed if grouped else None, upto))
                letters = []
            before = received


def _commit(feed: Feed[Any, Any] | None, delivery: Delivery | None) -> None:
    if feed is None:
        raise ValueError("there is no group, which could keep what is committed: name one by group=")
    feed.call(partial(_acknowledged, delivery))


async def _acknowledged(delivery: Delivery | None) -> None:
    if delivery is not None:
        await delivery.ack_to()
