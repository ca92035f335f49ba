"""Writer to topics of TANK."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastwire.columns.routes import Routes
from fastwire.columns.rows import Rows
from fastwire.producer import BatchLimits
from fastwire.tank.producing.bundle import Message, encode_time
from fastwire.tank.producing.outgoing import MessageRoutes
from fastwire.tank.producing.producer import ProducerSettings

from ...config import Connection
from ...runtime.clock import now_ms
from ..producing.leaderwriter import RecordWriter
from ..writer import Put, WriteOptions
from .cluster import ClientCluster
from .producer import TopicProducer
from .settings import ClientSettings, client_fields

_COMPRESS = {None: None, "NONE": False, "SNAPPY": True}  # None: the bundles that are worth it


class TankWriter(RecordWriter[Message]):
    """Implementation of ``Writer`` for TANK."""

    def _record(self, put: Put) -> Message:
        if put.value is None:
            raise ValueError("TANK has no null values; an empty one is possible")
        if put.ordering_key is not None or put.properties:
            raise ValueError(f'TANK has no "{"properties" if put.properties else "ordering_key"}"')
        key = put.key.encode() if isinstance(put.key, str) else put.key
        time = now_ms() if put.event_time is None else put.event_time
        return Message(value=put.value, key=key, timestamp=encode_time(time))

    def _routes(self, rows: Rows) -> Routes:
        return MessageRoutes(rows, now_ms())


def open_writer(connection: Connection, topic: str, options: WriteOptions) -> AbstractAsyncContextManager[TankWriter]:
    """See ``System.open_writer``."""
    if options.public_keys:
        raise ValueError("TANK has no encryption of messages")
    if options.compression not in _COMPRESS:
        raise ValueError(f"TANK has no {str(options.compression).lower()}: none, snappy")
    settings = ProducerSettings(
        compress=_COMPRESS[options.compression], batching=BatchLimits(records=max(options.batch, 1))
    )
    return _open(ClientSettings(**client_fields(connection)), topic, settings, options.create)


@asynccontextmanager
async def _open(
    client: ClientSettings, topic: str, settings: ProducerSettings, create: int
) -> AsyncIterator[TankWriter]:
    async with ClientCluster(client) as cluster, TopicProducer(cluster, topic, settings, create=create) as producer:
        yield TankWriter(producer)
