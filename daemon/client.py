"""The asyncio client of all systems: ``connect`` returns a :class:`Client`, which reads and writes topics.

Records are read as Arrow columns. The client is a thin layer over ``systems.base.System`` and depends on no system.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from .config import Connection, parse_connection, parse_size, parse_source
from .systems.base import TopicReader
from .systems.consuming.consumer import Consumer, Delivery
from .systems.registry import consuming, reading, system_named
from .systems.writer import Put, WriteOptions, Writer

__all__ = ["Client", "Consumer", "Delivery", "Put", "TopicReader", "WriteOptions", "Writer", "connect"]

TOGETHER = WriteOptions(batch=1000)


def connect(url: str, **keys: Any) -> "Client":
    """Return a client of the brokers at ``url``, whose scheme names the system.

    ``keys`` are those of a connection in a configuration file: ``auth={"user": "u", "password": "p"}``,
    ``tls={"ca": "ca.pem"}``. Connections are opened on demand. Raises ConfigError for an invalid URL, and for a key
    that the system does not have.
    """
    return Client({"url": url} | keys)


class Client:
    """A client of one cluster. It holds no connection: each reader and writer has its own, which end with its block."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self._keys = keys
        self.connection: Connection = parse_connection(keys)
        """The keys, checked, with the defaults."""
        self._system = system_named(self.connection.system)

    @property
    def system(self) -> str:
        """The name of the message system."""
        return self._system.grammar.name

    def read(
        self, topics: str | Iterable[str] = (), start: str | datetime = "latest", *, pattern: str | None = None
    ) -> AbstractAsyncContextManager[TopicReader]:
        """Return what opens a reader of ``topics``, or of all that match ``pattern``; it leaves nothing at the brokers.

        Iterate over the reader for chunks as they arrive, or over ``reader.up_to_now()`` for those up to the end of the
        topics at the opening. ``pyarrow.record_batch(chunk)`` takes a chunk without a copy. ``start`` is what the
        command ``tail`` takes as ``--from``: earliest, latest, ``-5m``, an RFC 3339 time or a position; or a datetime
        with a time zone. Raises ValueError for a topic, pattern or start that the system does not have, and ConfigError
        for unusable files; the block and the iteration raise FastwireError where the brokers refuse or do not answer.
        """
        return reading(self.connection, *self._system.chosen(topics, pattern, start))

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        group: str = "",
        *,
        start: str | datetime | Mapping[str, Any] = "earliest",
        pattern: str | None = None,
        columns: Iterable[str] | None = None,
        memory: int | str = "1GiB",
        **keys: Any,
    ) -> AbstractAsyncContextManager[Consumer]:
        """Return what opens a consumer of ``topics``, or of all that match ``pattern``, as a member of ``group``.

        Iterate over the consumer for chunks; ``await chunk.ack_to()`` acknowledges a chunk and all before it. The
        brokers keep the progress of the group, and ``start`` is for partitions that have none: earliest, latest, a
        time, or a table of positions as in a configuration file. ``columns`` are those to build, by default all.
        ``memory`` bounds the bytes of all chunks, those that the program holds among them. ``keys`` are more keys of a
        source in a configuration file, such as ``group_instance_id``.

        Raises ConfigError, ValueError for columns that the system does not have; the block and the iteration raise
        FastwireError where the brokers refuse.
        """
        if isinstance(start, datetime):
            start = start.isoformat()
        names = [topics] if isinstance(topics, str) else list(topics)
        chosen = ({"topics": names} if names else {}) | ({} if pattern is None else {"topics_pattern": pattern})
        source = parse_source({**self._keys, **chosen, "group": group, "start": start, **keys})
        return consuming(source, parse_size(memory), self._system.built(columns))

    def produce(self, topic: str, options: WriteOptions = TOGETHER) -> AbstractAsyncContextManager[Writer]:
        """Return what opens ``topic`` for writing: ``await writer.write(Put(b"value"))``.

        Leaving the block in order waits until all records are confirmed, as ``flush`` does. Raises ValueError for a
        topic that is not valid and for options that the system does not have, and ConfigError for unusable files. The
        block raises ProduceError; ``write`` raises ValueError that names the system if it lacks a part of the record,
        such as a key.
        """
        self._system.grammar.topic(topic)
        return self._system.open_writer(self.connection, topic, options)
