"""The contract of writers to a topic of any system, for commands, sinks and Spark."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args

from fastwire.columns.rows import Rows

from .load import Load
from .produced import Produced, Refused

Keys = Mapping[str, bytes | str | Path]
"""Public keys by name: PEM, or the path of a PEM file."""

BatchingName = Literal["key", "grouped", "mixed"]

C = TypeVar("C", bound=Enum)

_MOST = 1 << 63


class Put(NamedTuple):
    """A record and its requested partition; a key of bytes was given as base64, any other one is text.

    A property has text, or bytes or no value where the system stores these.
    """

    value: bytes | None
    key: str | bytes | None = None
    properties: Sequence[tuple[str, str | bytes | None]] = ()
    event_time: int | None = None  # milliseconds since 1970
    ordering_key: bytes | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a writer.

    ``compression`` is the name of a codec, None for the usual one of the system, ``batch`` the number of
    records per entry (0: no batches), ``hashing`` the hash that maps a key to its partition. ``batching`` says which
    keys share a batch where brokers hand whole batches to the reader of a key: "key" and "grouped" one, "mixed" any.
    "grouped" and "mixed" give up an order for larger batches (``fastwire.pulsar.producing.batcher.Batching``). With
    ``public_keys`` records are encrypted. A topic that does not exist is created with ``create`` partitions; 0 leaves
    that to the broker. ``name`` is the unique name of a writer, for ``Recall.fence``. Without ``resend`` a record fails
    rather than being sent again where the broker may have stored it and would not recognize it.
    """

    compression: str | None = None
    batch: int = 1
    batching: BatchingName = "key"
    create: int = 0
    hashing: str = "java"
    public_keys: Keys = field(default_factory=dict)
    name: str = ""
    resend: bool = True

    def __post_init__(self) -> None:
        if self.batch < 0 or self.create < 0:
            raise ValueError("batch and create are 0 or more")
        if self.batching not in get_args(BatchingName):
            raise ValueError(f"batching is {self.batching!r}; there are {', '.join(get_args(BatchingName))}")
        if self.compression is not None:
            object.__setattr__(self, "compression", self.compression.upper())


def checked(put: Put) -> Put:
    """Return a record whose parts have the types of ``Put``; other buffers become bytes. Raises ValueError.

    A part that cannot be encoded would fail later, and with it the batch or the producer that has taken it.
    """
    if not isinstance(put, Put):
        raise ValueError(f"a record is a Put, not {put!r:.60}")
    if isinstance(put.properties, str | Mapping):
        raise ValueError(f"properties are pairs of a name and a value, not {put.properties!r:.60}")
    try:
        properties = tuple(
            (_part("the name of a property", name, str, optional=False), value) for name, value in put.properties
        )
    except TypeError:
        raise ValueError(f"properties are pairs of a name and a value, not {put.properties!r:.60}") from None
    for what, number in (("event_time", put.event_time), ("partition", put.partition)):
        if number is not None and (type(number) is not int or not -_MOST <= number < _MOST):
            raise ValueError(f"{what} is a whole number of 64 bits, not {number!r:.60}")
    return put._replace(
        value=_part("value", put.value, bytes),
        key=_part("key", put.key, str, bytes),
        properties=tuple((name, _part("a property", value, str, bytes)) for name, value in properties),
        ordering_key=_part("ordering_key", put.ordering_key, bytes),
    )


def _part(what: str, given: Any, *kinds: type, optional: bool = True) -> Any:
    """Return a part of a record that is of one of the kinds, or None if it is ``optional``. Raises ValueError."""
    if given is None and optional:
        return None
    if bytes in kinds and isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if str not in kinds or not isinstance(given, str):
        raise ValueError(f"{what} is {' or '.join(kind.__name__ for kind in kinds)}, not {given!r:.60}")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} cannot be written as UTF-8: {given!r:.60}") from None
    return given


def texts_of(put: Put, title: str) -> tuple[tuple[str, str], ...]:
    """Return the properties of a record as text; bytes are UTF-8. Raises ValueError for others.

    ``title`` names the system, whose properties are text.
    """
    return tuple((name, value if isinstance(value, str) else _text(value, title)) for name, value in put.properties)


def _text(value: bytes | None, title: str) -> str:
    try:
        if value is not None:
            return value.decode()
    except UnicodeDecodeError:
        pass
    raise ValueError(f"properties of {title} are text in UTF-8, not {value!r:.60}")


class ConfirmedWriter(Protocol):
    """The receipts of a writer to one topic, however it takes its records. Methods raise ProduceError.

    Calls that wait together take effect in the order in which they began: the records of a partition are stored in the
    order of the calls, and ``flush`` waits for those of earlier ones. A call that is cancelled may have taken records.
    """

    @property
    def topic(self) -> str:
        """The name of the topic."""

    @property
    def produced(self) -> Produced:
        """Totals of the confirmed records."""

    async def flush(self) -> None:
        """Wait until the records of earlier calls are confirmed, or refused for good (rows with an origin)."""

    def take_refused(self) -> list[Refused]:
        """Return the rows with an origin that the brokers have refused for good since the last call."""


class Writer(ConfirmedWriter, Protocol):
    """A writer to one topic. Its methods raise ProduceError."""

    async def write(self, put: Put) -> None:
        """Take a record. Raises ValueError for one that the system cannot store."""

    async def write_rows(self, rows: Rows) -> None:
        """Take the rows of a batch. Raises ValueError if the system cannot store one, and none is taken then."""

    def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load; yields the number of records of each step."""


def puts_of(rows: Rows) -> Iterator[Put]:
    """Yield each row as a record, for a system without blocks of rows. Raises ValueError as ``Writer.write``."""
    return (Put(*rows.record(row)) for row in range(len(rows)))


def codec_named(codecs: type[C], name: str | None, title: str) -> C:
    """Return a codec by its name, LZ4 for None. Raises ValueError with those that the system called ``title`` has."""
    if name is None:
        return codecs["LZ4"]
    if name not in codecs.__members__:
        raise ValueError(f"{title} has no {name.lower()}: {', '.join(codec.lower() for codec in codecs.__members__)}")
    return codecs[name]


def refuse_create(options: WriteOptions, title: str) -> None:
    """Raise ValueError if a topic is to be created in the system called ``title``, whose producers create none."""
    if options.create:
        raise ValueError(f"{title}: topics are created by the brokers, or by the tools of {title}")
