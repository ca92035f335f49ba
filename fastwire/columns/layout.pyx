"""Row layout of a system: the common columns and its own. Allocation, growth and export follow it."""

cimport cython

from fastwire.columns.builder cimport (
    COL_HEADERS,
    COL_KEY,
    COL_OFFSET,
    COL_OWN,
    COL_PARTITION,
    COL_TIMESTAMP,
    COL_TIMESTAMP_TYPE,
    COL_TOPIC,
    COL_VALUE,
    MOST_CELLS,
    MOST_COLUMNS,
    MOST_RARE,
    MOST_STRINGS,
    STORE_BYTES,
    STORE_HEADERS,
    STORE_INT32,
    STORE_INT64,
    STORE_RARE_TIME,
    STORE_STRINGS,
    STORE_TIME,
    STORE_TOPIC,
    VAR_KEY,
    VAR_OWN,
    VAR_VALUE,
    Storage,
)

from fastwire.columns.schema import StoredColumn

__all__ = ["RowLayout"]

cdef dict STORAGES = {
    "int32": STORE_INT32,
    "int64": STORE_INT64,
    "time": STORE_TIME,
    "rare time": STORE_RARE_TIME,
    "bytes": STORE_BYTES,
    "strings": STORE_STRINGS,
    "topic": STORE_TOPIC,
    "headers": STORE_HEADERS,
}


@cython.final
cdef class RowLayout:
    """The columns of the records of one system, in the order of the row.

    All systems share the first eight columns, which have the names of Spark's Kafka source where it has them.
    ``offset`` and ``timestamp`` are the roles of these two columns, which differ between systems. ``own`` are the
    columns of this system only; their index in it, added to COL_OWN, is the number by which its decoder writes them.
    ``place`` names the columns that tell records of a partition apart, in the order in which people read them.
    Raises ValueError for more columns of a storage than a chunk has room for.
    """

    def __init__(self, str system, *, offset, timestamp, own=(), place=("offset",)):
        self.system = system
        self.place = tuple(place)
        self._names = []
        self.columns = ()
        self.add(COL_KEY, StoredColumn("key", "plain", storage="bytes"))
        self.add(COL_VALUE, StoredColumn("value", "plain", storage="bytes"))
        self.add(COL_TOPIC, StoredColumn("topic", "constant", storage="topic"))
        self.add(COL_PARTITION, StoredColumn("partition", "constant", stats=True, storage="int32"))
        self.add(COL_OFFSET, StoredColumn("offset", offset, stats=True, storage="int64"))
        self.add(COL_TIMESTAMP, StoredColumn("timestamp", timestamp, stats=True, storage="time"))
        self.add(COL_TIMESTAMP_TYPE, StoredColumn("timestampType", "constant", storage="int32"))
        self.add(COL_HEADERS, StoredColumn("headers", "list", storage="headers"))
        self.layout.place[COL_KEY] = VAR_KEY
        self.layout.place[COL_VALUE] = VAR_VALUE
        # By storage: the limit of a system's own columns, and the place of the first of them.
        limits = {"bytes": (MOST_CELLS, VAR_OWN), "strings": (MOST_STRINGS, 0), "rare time": (MOST_RARE, 0)}
        places = {storage: first for storage, (_, first) in limits.items()}
        for number, column in enumerate(own, COL_OWN):
            if number >= MOST_COLUMNS or column.storage in ("topic", "headers"):
                raise ValueError(f"{system}: {column.name!r} cannot be a column of a system's own")
            self.add(number, column)
            if column.storage in places:
                place = places[column.storage]
                if place >= limits[column.storage][0]:
                    raise ValueError(f"{system}: no room for {column.name!r}: too many columns of {column.storage}")
                self.layout.place[number] = place
                places[column.storage] += 1
                if column.storage == "rare time":
                    self.layout.rare[place] = number
                    self.layout.rare_count = place + 1

    cdef int add(self, int number, object column) except -1:
        cdef bytes name = column.name.encode()
        self._names.append(name)
        self.columns += (column,)
        self.layout.number[self.layout.count] = number
        self.layout.storage[number] = <Storage><int>STORAGES[column.storage]
        self.layout.name[number] = name
        self.layout.count += 1
        return 0

    @property
    def names(self):
        """The names of all columns, in the order of the row."""
        return tuple(column.name for column in self.columns)

    def mask(self, names=None):
        """Return the bits of the named columns (None: of all). Raises ValueError for an unknown name."""
        cdef int i
        unknown = set(names or ()) - set(self.names)
        if unknown:
            raise ValueError(f"{self.system} records have no column {', '.join(sorted(unknown))}")
        return sum(
            1 << self.layout.number[i]
            for i in range(self.layout.count) if names is None or self.columns[i].name in names
        )
