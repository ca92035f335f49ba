"""Requests of a consumer and of a producer to brokers (spec: tubemq 11, 12, 19)."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.reading.scan import ZONE_MINUTES

MSG_TYPE = "$msgType$"
MSG_TIME = "$msgTime$"

HAS_ATTRIBUTES = 1  # flag of a message

REGISTER = 31
UNREGISTER = 32


@dataclass(frozen=True, slots=True)
class ConsumerRequests:
    """A consumer by client id and group, as brokers know it."""

    client_id: str
    group: str

    def register(
        self,
        partition: BrokerPartition,
        authorization: pb.AuthorizedInfo,
        *,
        offset: int | None = None,
        filters: Iterable[str] = (),
    ) -> pb.RegisterRequestC2B:
        """Return the registration of a partition.

        ``offset`` is where the next GET begins; the broker clamps it to the partition and rounds it down to an entry,
        so that its response may name another one. A group without a stored offset begins at the oldest message.
        """
        request = pb.RegisterRequestC2B(
            opType=REGISTER,
            clientId=self.client_id,
            groupName=self.group,
            topicName=partition.topic,
            partitionId=partition.number,
            readStatus=0,
            filterCondStr=sorted(set(filters)),
            qryPriorityId=UNDEFINED,
            authInfo=authorization,
        )
        if offset is not None:
            request.currOffset = offset
        return request

    def unregister(self, partition: BrokerPartition, authorization: pb.AuthorizedInfo) -> pb.RegisterRequestC2B:
        """Return the end of a registration, which commits nothing."""
        return pb.RegisterRequestC2B(
            opType=UNREGISTER,
            clientId=self.client_id,
            groupName=self.group,
            topicName=partition.topic,
            partitionId=partition.number,
            readStatus=1,
            authInfo=authorization,
        )

    def heartbeat(
        self, partitions: Iterable[BrokerPartition], authorization: pb.AuthorizedInfo
    ) -> pb.HeartBeatRequestC2B:
        """Return the heartbeat for all held partitions of one broker."""
        return pb.HeartBeatRequestC2B(
            clientId=self.client_id,
            groupName=self.group,
            readStatus=0,
            partitionInfo=[str(each) for each in partitions],
            qryPriorityId=UNDEFINED,
            authInfo=authorization,
        )

    def get(self, partition: BrokerPartition, *, escape: bool = False) -> pb.GetMessageRequestC2B:
        """Return a GET, which a COMMIT alone confirms; several may be in flight (spec: tubemq 11.3).

        ``escape`` passes the broker's speed limit.
        """
        return pb.GetMessageRequestC2B(
            clientId=self.client_id,
            partitionId=partition.number,
            groupName=self.group,
            topicName=partition.topic,
            lastPackConsumed=False,
            manualCommitOffset=True,
            escFlowCtrl=escape,
        )

    def commit(self, partition: BrokerPartition) -> pb.CommitOffsetRequestC2B:
        """Return a COMMIT of everything fetched so far."""
        return pb.CommitOffsetRequestC2B(
            clientId=self.client_id,
            topicName=partition.topic,
            partitionId=partition.number,
            groupName=self.group,
            lastPackConsumed=True,
        )


def encode_payload(value: bytes, attributes: Mapping[str, str]) -> tuple[bytes, int]:
    """Return the payload of a message and its flag: without attributes the value itself.

    A broker refuses an empty payload (spec: tubemq 19), so an empty value stands behind an empty list of attributes.
    The reserved attributes come first. Raises ValueError for a key or value that would be read as another one.
    """
    if value and not attributes:
        return value, 0
    keys = sorted(attributes, key=lambda key: (MSG_TYPE, MSG_TIME).index(key) if key in (MSG_TYPE, MSG_TIME) else 2)
    for key in keys:
        if not key or "=" in key or "," in key or "," in attributes[key]:
            raise ValueError(f"attribute {key!r}: a key has no = and neither key nor value has a comma")
    text = ",".join(f"{key}={attributes[key]}" for key in keys).encode()
    return len(text).to_bytes(4) + text + value, HAS_ATTRIBUTES


def message_time(unix_ms: int) -> str:
    """Return a time as the attribute ``$msgTime$``, in the zone of the servers. Raises ValueError beside a minute."""
    if unix_ms % 60_000:
        raise ValueError(f"an event time of {unix_ms} ms: TubeMQ stores whole minutes")
    try:
        time = datetime.fromtimestamp(unix_ms // 1000, timezone(timedelta(minutes=ZONE_MINUTES)))
    except (ValueError, OverflowError, OSError) as exc:
        raise ValueError(f"an event time of {unix_ms} ms: {exc}") from None
    return f"{time.year:04}{time:%m%d%H%M}"  # %Y has no zeros before it


def payload_checksum(payload: bytes) -> int:
    """Return the check sum of a payload (spec: tubemq 12)."""
    return zlib.crc32(payload) & 0x7FFFFFFF


def send_request(
    client_id: str,
    topic: str,
    number: int,
    value: bytes,
    authorization: pb.AuthorizedInfo,
    *,
    address: int,
    attributes: Mapping[str, str] | None = None,
) -> pb.SendMessageRequestP2B:
    """Return the request that stores one message in partition ``number``; ``address`` is the sender's IPv4 address."""
    attributes = attributes or {}
    data, flag = encode_payload(value, attributes)
    request = pb.SendMessageRequestP2B(
        clientId=client_id,
        topicName=topic,
        partitionId=number,
        data=data,
        flag=flag,
        checkSum=payload_checksum(data),
        sentAddr=address - (1 << 32) if address >> 31 else address,
        authInfo=authorization,
    )
    if MSG_TYPE in attributes:
        request.msgType = attributes[MSG_TYPE]
    if MSG_TIME in attributes:
        request.msgTime = attributes[MSG_TIME]
    return request
