"""The contract of a message system with the rest of the product: one object of the class :class:`System`.

A system is a folder here with the module ``system``, whose ``SYSTEM`` is that object, and the module ``config``, whose
``CONNECTION``, ``SOURCE`` and ``SPARK`` are the models of its connections, of its sources and of the sources of Spark
jobs. ``fastwire.systems`` lists the systems. No module outside the folder of a system depends on which one it is.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.grammar import Grammar
from fastwire.systems import row_of
from fastwire.wire.pool import Pool

from ..config import Connection, SourceConfig, Start, TopicChoice, parse_start
from ..net.auth import BasicCredentials, Credentials
from ..net.schemaregistry import TopicSchemas
from ..runtime.metrics import PipelineMetrics
from .ledger import LedgerFinding, LedgerOptions, LedgerWriter
from .recall import Recall
from .sequenced import SequencedWriter
from .source import Source, SourceEvents
from .writer import WriteOptions, Writer

_BEFORE_END = re.compile(r"-[1-9][0-9]{0,17}")


class SchemaTexts(Protocol):
    """The schemas of records, where the brokers keep them."""

    def version_of(self, row: Mapping[str, Any]) -> tuple[str, bytes] | None:
        """Return the topic and the version of the schema of a row, which is a JSON line; None if it has no schema."""

    async def describe(self, topic: str, version: bytes) -> list[str]:
        """Return a schema as lines for people. Raises FastwireError if the broker or the connection fails."""


class TopicReader(Protocol):
    """Reads topics without a subscription: moves no cursor, sends no acks. Iterate for chunks as they arrive."""

    @property
    def schemas(self) -> SchemaTexts | None:
        """The schemas of the records; None if the system stores none."""

    @property
    def share(self) -> float | None:
        """The part of ``up_to_now`` that was handed on, from 0 to 1; None if it is not known. From any thread."""

    async def open(self) -> None:
        """Find the partitions and request their records. Raises FastwireError if no broker answers, or one refuses."""

    def __aiter__(self) -> AsyncIterator[Chunk]: ...

    def up_to_now(self) -> AsyncIterator[Chunk]:
        """Iterate over the chunks up to the end of the topics at the time of ``open``."""

    async def close(self) -> None:
        """Close the connections; nothing remains on the broker."""


class LimitedSource(Source, Protocol):
    """A source whose number of rows can be limited."""

    follows_group: bool
    """To be set before ``start``: ``Assignment.cursor`` says where the group stands also if Coverage knows the log.

    For a Coverage that the other members of the group do not share.
    """
    goes_back: bool
    """True if records that were acknowledged come again when Coverage ends before them."""

    def set_paused(self, index: int, *, paused: bool) -> None:
        """Request no more records of a log, or go on. Raises ValueError if the system cannot.

        Records that were requested before still arrive. It lasts over new assignments.
        """

    @property
    def slots(self) -> LogTable:
        """The table of the logs that are read, which has the limit."""


MakeSource = Callable[[SourceEvents, Pool, PipelineMetrics | None, frozenset[str] | None, str], LimitedSource]
"""Makes a source from its events, the pool of buffers, metrics, the columns to build and the name of the cluster."""


class Described(NamedTuple):
    """A cluster's description of topics: each with its number of partitions (0: not partitioned), and troubles.

    A trouble is the reason why a partition cannot be read.
    """

    topics: Sequence[tuple[str, int]]
    troubles: Sequence[str]


class FileCheck(NamedTuple):
    """A check of a source's file before a start: ``look`` returns a summary, or raises ConfigError."""

    what: str
    look: Callable[[], str]


class System(ABC):
    """One message system. ``grammar`` is that of ``fastwire.systems``."""

    grammar: Grammar
    real_demo = False
    """True if the source tree can start a real broker for the demo."""

    @abstractmethod
    def make_source(self, source: SourceConfig) -> MakeSource:
        """Return what makes the source of a pipeline. Raises ConfigError for a file that cannot be used."""

    @abstractmethod
    def open_reader(
        self,
        connection: Connection,
        topics: TopicChoice,
        start: Start,
        pool: Pool,
        columns: frozenset[str] | None = None,
    ) -> TopicReader:
        """Return a reader of ``topics`` from ``start`` on, which builds ``columns`` (None: all).

        Raises ConfigError as above.
        """

    def start_of(self, text: str, topics: TopicChoice) -> Start:
        """Return the first position of ``topics`` that ``text``, the option ``--from``, names. Raises ValueError.

        A text such as "-10" is so many records before the end of each partition.
        """
        if _BEFORE_END.fullmatch(text):
            return Start("latest", offset=int(text))
        return parse_start(text, self.grammar)

    def chosen(
        self, topics: str | Iterable[str], pattern: str | None, start: str | datetime
    ) -> tuple[TopicChoice, Start]:
        """Return the topics and the first position that a caller in Python means. Raises ValueError."""
        if isinstance(start, datetime):
            start = start.isoformat()
        elif not isinstance(start, str):
            raise ValueError(f"a start is a text or a datetime, not {start!r:.200}")
        names = [topics] if isinstance(topics, str) or not isinstance(topics, Iterable) else list(topics)
        if strange := [name for name in names if not isinstance(name, str)]:
            raise ValueError(f"a topic is a text, not {strange[0]!r:.200}")
        if bool(names) == (pattern is not None):
            raise ValueError("a reader takes either topics or a pattern")
        grammar = self.grammar
        choice = TopicChoice(tuple(map(grammar.topic, names)), None if pattern is None else grammar.pattern(pattern))
        return choice, self.start_of(start, choice)

    def built(self, columns: Iterable[str] | None) -> frozenset[str] | None:
        """Return the columns of records that a caller in Python asks for, None for all. Raises ValueError."""
        if columns is None:
            return None
        known = row_of(self.grammar.name).names
        wanted = list(columns)
        if strange := [name for name in wanted if name not in known]:
            raise ValueError(f'"{strange[0]}" is not a column: known are {", ".join(known)}')
        return frozenset(wanted)

    @abstractmethod
    async def describe(self, connection: Connection, topics: TopicChoice) -> Described:
        """Ask the brokers for ``topics``. Reads nothing. Raises FastwireError where a broker refuses."""

    def open_writer(
        self, connection: Connection, topic: str, options: WriteOptions
    ) -> AbstractAsyncContextManager[Writer]:
        """Return what opens ``topic`` for writing; leaving its block in order waits until all is confirmed.

        Entering raises ProduceError. Raises ConfigError for unusable files, and ValueError for what the system does
        not have, such as a codec, and for a key that cannot be read. The module ``writer`` of the system does it,
        which is imported here because most processes only read.
        """
        own = import_module(f"{type(self).__module__.rpartition('.')[0]}.writer")
        opened: AbstractAsyncContextManager[Writer] = own.open_writer(connection, topic, options)
        return opened

    def open_ledger(
        self, connection: Connection, topic: str, options: WriteOptions, ledger: LedgerOptions
    ) -> AbstractAsyncContextManager[LedgerWriter]:
        """Return what opens ``topic`` for writing in transactions; leaving its block aborts the open one.

        Raises as ``open_writer``, and ValueError if the system has no transactions. Entering raises LedgerRefused.
        """
        raise ValueError(f"{self.grammar.title} has no transactions of records and positions here")

    async def inspect_ledger(self, connection: Connection, topic: str, ledger: LedgerOptions) -> list[LedgerFinding]:
        """Check whether ``open_ledger`` would work, without a trace. Raises FastwireError if no broker answers."""
        return []

    def open_sequenced(
        self, connection: Connection, topic: str, options: WriteOptions
    ) -> AbstractAsyncContextManager[SequencedWriter]:
        """Return what opens ``topic`` for writing numbered records.

        Raises as ``open_writer``, and ValueError if brokers of the system do not drop what they have stored.
        """
        raise ValueError(f"brokers of {self.grammar.title} do not drop records that they have stored")

    def recall(self, connection: Connection, topic: str, pool: Pool) -> Recall | None:
        """Return what finds records of ``topic`` again by their properties; None if the system cannot.

        Raises ConfigError for unusable files.
        """
        return None

    def topic_schemas(self, connection: Connection) -> TopicSchemas:
        """Return the schemas that the brokers keep, if the grammar says so. Raises ConfigError for unusable files."""
        raise NotImplementedError(f"brokers of {self.grammar.title} keep no schemas")

    def sharing(self, source: SourceConfig) -> str:
        """Say under which name a pipeline reads, and how it shares the topics with others."""
        return "all partitions alone, the brokers keep no progress"

    def mechanism(self, connection: Connection) -> str:
        """Return the mechanism by which the broker is shown the credentials; "" if the system has only one."""
        return ""

    def check_credentials(self, credentials: Credentials | BasicCredentials) -> None:  # noqa: B027 - most systems take all
        """Raise AuthError for credentials that the system cannot transport."""

    def file_checks(self, connection: Connection) -> list[FileCheck]:
        """Return the checks of files that only this system has."""
        return []
