"""A producer: its registration at the Master, the partitions it may store in, and sends that must be repeated.

Delivery is at least once: a send whose response is lost is repeated, and the broker may have stored both (spec: tubemq
19).
"""

from collections.abc import Callable, Mapping

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED
from fastwire.tubemq.format.error import BrokerError, Code, Remedy, remedy_of
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import Broker, BrokerPartition, check_total, read_broker, read_producer_topic
from fastwire.tubemq.groups.master import RETRY_S, ClientSettings, MasterClient, State
from fastwire.tubemq.protocol.request import encode_payload, send_request

MESSAGE_BYTES = (1 << 20) + (10 << 10)
"""The largest payload that a broker stores, unless the Master names another size."""

REST_S = 1.0  # of a partition after a send that failed


class Producer(MasterClient):
    """One producer. The driver sends ``request`` to the broker of a partition that ``choose`` returned."""

    def __init__(self, settings: ClientSettings, *, address: int = 0) -> None:
        """``address`` is the IPv4 address that brokers note for each message."""
        super().__init__(settings)
        self.settings = settings
        self._address = address
        self._brokers: dict[int, Broker] = {}
        self._check_sum = -1
        self._config_id = UNDEFINED
        self._most = MESSAGE_BYTES
        self._most_of: dict[str, int] = {}
        self._partitions: dict[str, list[BrokerPartition]] = {}
        self._turns: dict[str, int] = {}
        self._rests: dict[str, float] = {}  # until when, by key of the partition

    # --- requests to the Master

    def _config(self) -> pb.ApprovedClientConfig:
        return pb.ApprovedClientConfig(configId=self._config_id)

    def _register(self) -> tuple[Method, Message]:
        return Method.PRODUCER_REGISTER, pb.RegisterRequestP2M(
            clientId=self.settings.client_id,
            topicList=self.settings.topics,
            brokerCheckSum=self._check_sum,
            hostName=self.settings.host,
            appdConfig=self._config(),
        )

    def _next(self, now: float) -> tuple[Method, Message]:
        return Method.PRODUCER_HEARTBEAT, pb.HeartRequestP2M(
            clientId=self.settings.client_id,
            brokerCheckSum=self._check_sum,
            hostName=self.settings.host,
            topicList=self.settings.topics,
            appdConfig=self._config(),
        )

    def _close(self) -> tuple[Method, Message]:
        return Method.PRODUCER_CLOSE, pb.CloseRequestP2M(clientId=self.settings.client_id)

    def answered(self, body: Message, now: float) -> None:
        """Handle the response to the request in flight.

        Raises BrokerError if the Master refuses the client for good, ProtocolError for a response that breaks the
        protocol, and no partition is changed then.
        """
        if self._landed(body, now, pb.CloseResponseM2P):
            return
        assert isinstance(body, pb.RegisterResponseM2P | pb.HeartResponseM2P)
        registers = isinstance(body, pb.RegisterResponseM2P)
        if not self._accepted(body.errCode, body.errMsg, now, RETRY_S if registers else self.settings.heartbeat_s):
            return
        # The first heartbeat follows at once: it brings the partitions.
        self._due = now if registers else now + self.settings.heartbeat_s
        self.state = State.REGISTERED
        brokers = [read_broker(text, tls=self.settings.tls) for text in body.brokerInfos]
        if brokers:
            self._brokers = {broker.id: broker for broker in brokers}
        if isinstance(body, pb.HeartResponseM2P):
            self._store_topics(body)
        self._check_sum = body.brokerCheckSum
        if body.HasField("authorizedInfo"):
            self.token.store(body.authorizedInfo)
        if body.HasField("appdConfig"):
            self._config_id = body.appdConfig.configId
            if body.appdConfig.HasField("maxMsgSize"):
                self._most = body.appdConfig.maxMsgSize

    def _lost(self, method: Method, now: float, unsent: bool) -> None:
        """Repeat the request, which changes nothing at the Master."""

    def _store_topics(self, body: pb.HeartResponseM2P) -> None:
        partitions: dict[str, list[BrokerPartition]] = {}
        most_of: dict[str, int] = {}
        listed = [read_producer_topic(text) for text in body.topicInfos]
        check_total(meta for metas, _ in listed for meta in metas)
        for metas, most in listed:
            for meta in metas:
                broker = self._brokers.get(meta.broker_id)
                if broker is not None:
                    places = partitions.setdefault(meta.topic, [])
                    places += (BrokerPartition(broker, meta.topic, number) for number in meta.numbers())
                if most is not None:
                    most_of[meta.topic] = most
        self._partitions, self._most_of = partitions, most_of

    # --- messages

    def partitions(self, topic: str) -> list[BrokerPartition]:
        """Return the partitions of a topic that store messages now."""
        return self._partitions.get(topic, [])

    def message_bytes(self, topic: str) -> int:
        """Return the size of the largest payload of a topic."""
        return self._most_of.get(topic, self._most)

    def choose(
        self, topic: str, now: float, usable: Callable[[BrokerPartition], bool] = lambda partition: True
    ) -> BrokerPartition | None:
        """Return the partition for the next message, in turn among those that are usable; None while there is none."""
        places = self.partitions(topic)
        self._rests = {key: until for key, until in self._rests.items() if until > now}
        for _ in places:
            turn = self._turns.get(topic, 0) % len(places)
            self._turns[topic] = turn + 1
            if places[turn].key not in self._rests and usable(places[turn]):
                return places[turn]
        return None

    def check(self, topic: str, value: bytes, attributes: Mapping[str, str]) -> None:
        """Raise ValueError for a message that brokers do not store: too large, or with an invalid attribute."""
        self._check_size(topic, len(encode_payload(value, attributes)[0]))

    def _check_size(self, topic: str, size: int) -> None:
        most = self.message_bytes(topic)
        if size > most:
            raise ValueError(f"a message of {size} bytes: {topic} stores {most} at most")

    def request(
        self, partition: BrokerPartition, value: bytes, attributes: Mapping[str, str] | None = None
    ) -> pb.SendMessageRequestP2B:
        """Return the request that stores a message. Raises ValueError as ``check``."""
        request = send_request(
            self.settings.client_id,
            partition.topic,
            partition.number,
            value,
            self.token.for_broker(),
            address=self._address,
            attributes=attributes,
        )
        self._check_size(partition.topic, len(request.data))
        return request

    def sent(self, partition: BrokerPartition, body: pb.SendMessageResponseB2P | None, now: float) -> bool:
        """Return whether a message was stored; if not, it is to be sent again, to the partition that comes next.

        ``body`` is the response of the broker, None without one. Raises BrokerError for a message that no partition
        stores.
        """
        if body is not None:
            remedy = remedy_of(body.errCode)
            if remedy is Remedy.NONE:
                return True
            if remedy is Remedy.CREDENTIALS or body.errCode == Code.BAD_REQUEST:
                raise BrokerError(body.errCode, body.errMsg)
            if remedy is Remedy.FORBIDDEN and self.state is State.REGISTERED:
                self._due = min(self._due, now)  # the partition is closed or gone, which a heartbeat tells
        self._rests[partition.key] = now + REST_S
        return False
