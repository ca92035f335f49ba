"""The embedded Pulsar broker: the table of commands over a cluster."""

from fastwire.pulsar import pulsar_pb2 as pb

from ..server import on_loop
from . import consumers, metadata, producers
from .cluster import Cluster
from .connection import Handlers, PulsarConnection

Command = pb.BaseCommand

HANDLERS: Handlers = {
    Command.CONNECT: ("connect", PulsarConnection.connect),
    Command.AUTH_RESPONSE: ("authResponse", PulsarConnection.auth_response),
    Command.PING: ("ping", PulsarConnection.ping),
    Command.PONG: ("pong", PulsarConnection.pong),
    Command.PARTITIONED_METADATA: ("partitionMetadata", metadata.partitioned_metadata),
    Command.LOOKUP: ("lookupTopic", metadata.lookup),
    Command.GET_TOPICS_OF_NAMESPACE: ("getTopicsOfNamespace", metadata.topics_of_namespace),
    Command.WATCH_TOPIC_LIST: ("watchTopicList", metadata.watch_topics),
    Command.WATCH_TOPIC_LIST_CLOSE: ("watchTopicListClose", metadata.unwatch_topics),
    Command.GET_SCHEMA: ("getSchema", metadata.get_schema),
    Command.PRODUCER: ("producer", producers.open_producer),
    Command.SEND: ("send", producers.send),
    Command.CLOSE_PRODUCER: ("close_producer", producers.close_producer),
    Command.SUBSCRIBE: ("subscribe", consumers.subscribe),
    Command.FLOW: ("flow", consumers.flow),
    Command.ACK: ("ack", consumers.ack),
    Command.REDELIVER_UNACKNOWLEDGED_MESSAGES: ("redeliverUnacknowledgedMessages", consumers.redeliver),
    Command.SEEK: ("seek", consumers.seek),
    Command.GET_LAST_MESSAGE_ID: ("getLastMessageId", consumers.get_last_message_id),
    Command.CONSUMER_STATS: ("consumerStats", consumers.consumer_stats),
    Command.UNSUBSCRIBE: ("unsubscribe", consumers.unsubscribe),
    Command.CLOSE_CONSUMER: ("close_consumer", consumers.close_consumer),
}


class PulsarDevBroker(Cluster):
    """Serves a ``Cluster``, and checks clients more strictly than a real broker.

    Permits, subscribing, acknowledgements and request ids are checked; a client that breaks a rule gets an ERROR with
    the text, loses its connection, and ``violations`` has one line more. A broker with other manners has another class
    as its ``connection``.
    """

    connection: type[PulsarConnection] = PulsarConnection

    def accept(self) -> PulsarConnection:
        """See ``Server.accept``."""
        return self.connection(self, HANDLERS)

    @on_loop
    def challenge(self) -> None:
        """Ask all clients for fresh credentials."""
        for connection in self.connections:
            if isinstance(connection, PulsarConnection) and connection.connected:
                connection.challenge()

    @on_loop
    def expire_credentials(self) -> None:
        """Let the credentials of all clients expire now, and check them."""
        for connection in tuple(self.connections):
            if isinstance(connection, PulsarConnection) and connection.connected:
                connection.login.expire()
