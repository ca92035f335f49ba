"""Take over the broker's count of permits where damage or the broker itself has made ours wrong."""

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.consumer import ConsumerMachine
from fastwire.pulsar.protocol.request import available_permits

from ...runtime.logs import get_logger
from .link import Link

__all__ = ["reconcile"]

log = get_logger("permits")


def reconcile(consumer: ConsumerMachine, link: Link, topic: str, stats: pb.CommandConsumerStatsResponse) -> None:
    """Take over the broker's count, and grant what is missing; no entries have arrived since it was asked for."""
    lost = consumer.reconcile(available_permits(stats))
    if lost:
        log.warning("the broker counts permits otherwise than this consumer: its count is used", topic=topic, lost=lost)
        link.flush()
