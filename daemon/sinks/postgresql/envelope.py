"""Change events in Debezium's envelope as the rows that they are about.

An event has the row ``before`` and ``after``, and ``op``: c, r and u set the row after, d deletes the row before, t
empties the table. A tombstone follows a deletion, and says nothing new.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from fastwire.decode.evolution import Column

from ...config.decode import DELETED
from .rows import Gathered, counting

COLUMNS = ("before", "after", "op")
_SETS, _DELETES, _EMPTIES = ("c", "r", "u"), "d", "t"
_NOT_SENT = "__debezium_unavailable_value"
_NO_EVENT = ("22023", "it is no change event: op is not one of c, r, u, d, t")
_LACKS = ("22023", f"{_NOT_SENT}: the source has not sent an unchanged value; its table needs REPLICA IDENTITY FULL")


def columns_in(columns: Sequence[Column]) -> Sequence[Column]:
    """Return the columns of the rows that events with ``columns`` are about. Raises ValueError if they are none."""
    known = {each.name: each for each in columns}
    if lacking := [name for name in COLUMNS if name not in known]:
        raise ValueError(f"the values have no {', '.join(lacking)}, and so are no change events of Debezium")
    after = known["after"]
    if after.arrow != "+s" or known["before"].arrow != "+s":
        raise ValueError("before and after are no records")
    return after.children


def opened(events: Gathered) -> Iterator[tuple[Gathered, bool]]:
    """Yield the rows of events in their order; True stands for an emptied table, and comes without rows and columns."""
    batch = events.batch
    if DELETED in batch.schema.names:
        kept = pc.indices_nonzero(pc.invert(pc.fill_null(batch.column(DELETED), False)))
        if len(kept) < batch.num_rows:
            batch, numbers = batch.take(kept), events.numbers
            events = events.of(batch, [numbers[row] for row in kept.to_pylist()])
    ops = batch.column("op").cast(pa.string())
    first = 0
    for at in pc.indices_nonzero(pc.fill_null(pc.equal(ops, _EMPTIES), False)).to_pylist():
        yield _rows(events, ops, first, at), False
        yield events.of(batch.slice(0, 0).select([]), ()), True
        first = at + 1
    yield _rows(events, ops, first, batch.num_rows), False


def _rows(events: Gathered, ops: pa.Array, first: int, upto: int) -> Gathered:
    batch, ops = events.batch.slice(first, upto - first), ops.slice(first, upto - first)
    deleted = pc.fill_null(pc.equal(ops, _DELETES), False)
    before, after = batch.column("before"), batch.column("after")
    arrays, lacking = {}, pa.repeat(False, batch.num_rows)
    for field in after.type:
        array = _field(after, field.name)
        if before.type.get_field_index(field.name) >= 0:
            array = _chosen(deleted, _field(before, field.name).cast(array.type), array)
        elif not pa.types.is_nested(array.type):
            array = pc.if_else(deleted, pa.scalar(None, array.type), array)
        if pa.types.is_string(array.type):
            lacking = pc.or_(lacking, pc.fill_null(pc.equal(array, _NOT_SENT), False))
        arrays[field.name] = array
    arrays[DELETED] = deleted
    strange = pc.invert(pc.or_(deleted, pc.fill_null(pc.is_in(ops, pa.array(_SETS)), False)))
    # A deletion needs no more than its key.
    lacks = pc.indices_nonzero(pc.and_(lacking, pc.invert(deleted))).to_pylist()
    unfit = dict.fromkeys(lacks, _LACKS) | dict.fromkeys(pc.indices_nonzero(strange).to_pylist(), _NO_EVENT)
    return events.of(pa.record_batch(arrays), events.numbers[first:upto], unfit)


def _field(rows: pa.StructArray, name: str) -> pa.Array:
    """Return a field of structs, null where the struct is."""
    return pc.struct_field(rows, [rows.type.get_field_index(name)])


def _chosen(deleted: pa.Array, before: pa.Array, after: pa.Array) -> pa.Array:
    if not pa.types.is_nested(after.type):
        return pc.if_else(deleted, before, after)
    rows = counting(len(after))
    return pa.concat_arrays([after, before]).take(pc.add(rows, pc.if_else(deleted, len(after), 0)))
