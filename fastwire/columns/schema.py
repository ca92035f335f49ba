"""Columns of a row: name, storage, and hints for file formats."""

from dataclasses import dataclass, field
from typing import Literal

Storage = Literal["int32", "int64", "time", "rare time", "bytes", "strings", "topic", "headers"]
"""Storage of a column, which determines its Arrow type:

* ``int32``, ``int64``: a number in every row.
* ``time``: microseconds since 1970, written for every row; a marker value stands for null until the chunk is closed.
* ``rare time``: the same, but a row without a written value is null.
* ``bytes``: binary of any size; a row without a written value is null.
* ``strings``: repeated text, as a dictionary of the chunk.
* ``topic``: the topic of the row's log, as a dictionary over the logs of the connection.
* ``headers``: a list of pairs of key (text) and value (binary or null); a row without headers is null.
"""

Role = Literal["constant", "counter", "plain", "list"]
"""Property of the values for an encoder: ``constant`` cells repeat within a batch, ``counter`` cells grow by small
steps, ``plain`` cells have no such property, ``list`` is nested.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column for an encoder. ``stats`` requests minimum and maximum in files that can hold them."""

    name: str
    role: Role
    stats: bool = False


@dataclass(frozen=True, slots=True)
class StoredColumn(Column):
    """A column of a system's records, with its storage."""

    storage: Storage = field(kw_only=True)

    @property
    def nullable(self) -> bool:
        """True if a cell can be null."""
        return self.storage in ("time", "rare time", "bytes", "headers")
