"""The partitions of topics as the Master tells them to producers: asking leaves nothing at the cluster."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

from google.protobuf.message import Message

from fastwire.errors import FastwireError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError, Code
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.groups.master import ClientSettings as ProducerSettings
from fastwire.tubemq.producing.producer import Producer

from .cluster import Cluster
from .link import Link, RefusedError
from .settings import ClientSettings


async def list_partitions(
    cluster: Cluster, settings: ClientSettings, topics: Sequence[str]
) -> Mapping[str, Sequence[BrokerPartition]]:
    """Return the partitions of each topic that store messages now, none for an unknown topic.

    Tries each Master once. Raises the last one's FastwireError.
    """
    failure: FastwireError = FastwireError("the URL names no host")
    for _ in settings.url.addresses:
        link = await cluster.master()
        try:
            return await _ask(link, settings, topics)
        except BrokerError:
            raise
        except FastwireError as exc:
            failure = exc
            cluster.leave_master(link)
    try:
        raise failure
    finally:
        del failure  # it holds this frame


async def count_partitions(cluster: Cluster, settings: ClientSettings, topics: Sequence[str]) -> list[tuple[str, int]]:
    """Return the number of partitions of each topic. Raises FastwireError for a topic without partitions."""
    listed = await list_partitions(cluster, settings, topics)
    for topic, places in listed.items():
        if not places:
            raise FastwireError(f'topic "{topic}" is not deployed, or none of its partitions stores messages')
    return [(topic, len(places)) for topic, places in listed.items()]


async def _ask(link: Link, settings: ClientSettings, topics: Sequence[str]) -> Mapping[str, Sequence[BrokerPartition]]:
    producer = Producer(ProducerSettings(client_id=settings.new_id(), topics=tuple(topics), **settings.shown()))
    for _ in ("registration", "heartbeat"):
        body = await _next(link, producer)
        assert isinstance(body, pb.RegisterResponseM2P | pb.HeartResponseM2P)
        if body.errCode != Code.SUCCESS:
            raise BrokerError(body.errCode, body.errMsg)
        producer.answered(body, 0.0)
    producer.close(0.0)
    with suppress(RefusedError):  # the Master forgets the producer anyway
        await _next(link, producer)
    return {topic: producer.partitions(topic) for topic in topics}


async def _next(link: Link, producer: Producer) -> Message:
    request = producer.take_request(math.inf)
    assert request is not None
    return await link.ask(*request, Message)
