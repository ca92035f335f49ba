"""Rows on their way into a table: with the columns of the table, and with what makes dead letters of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...config.decode import DELETED
from ..recordrows import Runs
from .columns import Held, fitting

NO_KEY = ("23502", "a column of its key is null")
_VALUE = "value"


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows of one chunk that wait for a commit."""

    batch: pa.RecordBatch
    numbers: Sequence[int]
    """The row of ``source`` that each row comes from."""
    source: pa.RecordBatch
    """Value and place of the records."""
    runs: Runs
    """The logs of the rows of ``source``."""
    unfit: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """SQLSTATE and reason of rows of ``batch`` that cannot land."""

    def of(
        self, batch: pa.RecordBatch, numbers: Sequence[int], unfit: Mapping[int, tuple[str, str]] | None = None
    ) -> "Gathered":
        """Return other rows of the same records."""
        return replace(self, batch=batch, numbers=numbers, unfit=unfit or {})


class Letter(NamedTuple):
    """A row that the table cannot have."""

    gathered: Gathered
    row: int
    """Its row in ``source``."""
    sqlstate: str
    reason: str
    put: bool
    """True if the database has refused it, False if it was not sent there."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Rows with the columns of the table, in the types that the driver writes."""

    batch: pa.RecordBatch
    gathered: Gathered
    numbers: Sequence[int]
    deleted: pa.Array | None = None
    """For rows that replace others: true if the row of the key is to go."""
    clears: bool = False
    """True if the table is emptied; there are no rows then."""
    letters: list[Letter] = field(default_factory=list)
    """The rows that cannot have their values in these columns."""


def prepared(gathered: Gathered, held: Mapping[str, Held], key: Sequence[str], of_bytes: frozenset[str]) -> Ready:
    """Return rows with those of their columns that the table has. With a ``key`` rows may be deletions."""
    batch, numbers = gathered.batch, gathered.numbers
    deleted = _deleted(gathered) if key else None
    if deleted is not None:
        batch = _with_keys(batch, key, deleted)
    arrays, wrong = {}, dict(gathered.unfit)
    for name in batch.schema.names:
        if name in held:
            arrays[name], unfit = fitting(batch.column(name), held[name], name in of_bytes)
            wrong |= {row: (sqlstate, f"{name}: {why}") for row, (sqlstate, why) in unfit.items() if row not in wrong}
    for name in key:
        if arrays[name].null_count:
            nulls = pc.indices_nonzero(arrays[name].is_null()).to_pylist()
            wrong |= {row: NO_KEY for row in nulls if row not in wrong}
    rows = pa.record_batch(arrays) if arrays else batch.select([])
    letters = [Letter(gathered, numbers[row], *why, put=False) for row, why in sorted(wrong.items())]
    if wrong:
        kept = pa.array([row for row in range(batch.num_rows) if row not in wrong], pa.int64())
        rows, numbers = rows.take(kept), [numbers[row] for row in kept.to_pylist()]
        deleted = None if deleted is None else deleted.take(kept)
    return Ready(rows, gathered, numbers, deleted, letters=letters)


def counting(rows: int, first: int = 0) -> pa.Array:
    """Return the numbers of so many rows."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows), start=first), 1)


def _deleted(gathered: Gathered) -> pa.Array:
    """Return whether each row is a deletion: the rows of null values."""
    if DELETED in gathered.batch.schema.names:
        return pc.fill_null(gathered.batch.column(DELETED), False)
    if _VALUE not in gathered.batch.schema.names:
        return pa.repeat(False, gathered.batch.num_rows)
    return gathered.batch.column(_VALUE).is_null()


def _with_keys(batch: pa.RecordBatch, key: Sequence[str], deleted: pa.Array) -> pa.RecordBatch:
    """Fill the key of deletions, whose values are null, from the keys of the records."""
    if not pc.any(deleted, min_count=0).as_py() or "_key" not in batch.schema.names:
        return batch
    keys = batch.column("_key")
    for name in key:
        at = batch.schema.get_field_index(name)
        if at < 0 or name == "_key":
            continue
        own = batch.column(at)
        part = keys
        if pa.types.is_struct(keys.type):
            if keys.type.get_field_index(name) < 0:
                continue
            part = pc.struct_field(keys, [keys.type.get_field_index(name)])
        elif len(key) > 1:
            continue  # the record's key is one value
        filled = pc.if_else(pc.and_(deleted, own.is_null()), _as(part, own.type, deleted), own)
        batch = batch.set_column(at, batch.schema.field(at), filled)
    return batch


def _as(keys: pa.Array, kind: pa.DataType, wanted: pa.Array) -> pa.Array:
    """Return keys as values of another type, as far as they are ``wanted``; null where that cannot be."""
    try:
        texts = keys.cast(pa.string()) if pa.types.is_binary(keys.type) and not pa.types.is_binary(kind) else keys
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(keys) == 1:
            return pa.nulls(1, kind)
    half = len(keys) // 2
    return pa.concat_arrays([_as(keys.slice(0, half), kind, wanted), _as(keys.slice(half), kind, wanted)])
