"""The command ``produce`` on topics of TubeMQ."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastwire.columns.rows import Rows
from fastwire.tubemq.producing.outbox import OutgoingMessage
from fastwire.tubemq.protocol.request import MSG_TIME, message_time

from ...config import Connection
from ..load import Load
from ..producing.topicwriter import ProducerWriter
from ..writer import Put, WriteOptions, checked, puts_of, refuse_create, texts_of
from .cluster import ClientCluster
from .producer import TopicProducer
from .settings import ClientSettings, client_fields

MINUTE_MS = 60_000


class TubeMQWriter(ProducerWriter[TopicProducer]):
    """Implementation of ``Writer`` for TubeMQ: each record is a message, and goes to the partition that comes next."""

    async def write(self, put: Put) -> None:
        """See ``Writer.write``."""
        await self._producer.put(self._message(checked(put)))

    async def write_rows(self, rows: Rows) -> None:
        """See ``Writer.write_rows``. Parts of a minute are cut off event times, and counted in ``rows``."""
        messages, counted = [], rows.changed_times
        for put in puts_of(rows):  # all are looked at before one is stored
            if put.event_time is not None and (past := put.event_time % MINUTE_MS):
                put = put._replace(event_time=put.event_time - past)
                rows.changed_times = counted + 1
            counted = rows.changed_times
            messages.append(self._message(put))
        await self._producer.put_each((message, None) for message in messages)

    def _message(self, put: Put) -> OutgoingMessage:
        message = _message(put)
        self._producer.check(message)
        return message

    async def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load; yields how many records each step has taken."""
        for number in range(load.first, load.first + load.records):
            await self.write(Put(load.record(number)))
            yield 1


def _message(put: Put) -> OutgoingMessage:
    """Return the message of a record. Raises ValueError for what TubeMQ does not have."""
    if put.value is None:
        raise ValueError("TubeMQ has no null values; an empty one is possible")
    if put.key is not None or put.ordering_key is not None:
        raise ValueError(f'TubeMQ has no "{"key" if put.key is not None else "ordering_key"}"')
    attributes = dict(texts_of(put, "TubeMQ"))
    if len(attributes) < len(put.properties):
        raise ValueError("TubeMQ has one property of a name")
    if put.event_time is not None:
        time = message_time(put.event_time)
        if attributes.setdefault(MSG_TIME, time) != time:
            raise ValueError(f'TubeMQ stores the event time as the property "{MSG_TIME}", which is given, too')
    return OutgoingMessage(put.value, attributes, put.partition)


def open_writer(connection: Connection, topic: str, options: WriteOptions) -> AbstractAsyncContextManager[TubeMQWriter]:
    """See ``System.open_writer``."""
    if options.public_keys:
        raise ValueError("TubeMQ has no encryption of messages")
    refuse_create(options, "TubeMQ")
    if options.compression not in (None, "NONE"):
        raise ValueError(f"TubeMQ has no {options.compression.lower()}: none")
    return _open(ClientSettings(**client_fields(connection)), topic, options.resend)


@asynccontextmanager
async def _open(client: ClientSettings, topic: str, resend: bool) -> AsyncIterator[TubeMQWriter]:
    async with ClientCluster(client) as cluster, TopicProducer(cluster, topic, client, resend=resend) as producer:
        yield TubeMQWriter(producer)
