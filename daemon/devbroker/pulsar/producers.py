"""Who writes to a topic, and who may (Pulsar 24.1, 24.4)."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fastwire.pulsar import pulsar_pb2 as pb

from .subscription import RefusedError

if TYPE_CHECKING:
    from .connection import PulsarConnection
    from .topic import Topic

__all__ = ["Producer", "Producers"]


class Producer:
    """One producer on one connection; ``welcome`` tells its client that it may begin."""

    def __init__(self, connection: "PulsarConnection", topic: "Topic", request: pb.CommandProducer, name: str) -> None:
        self.connection = connection
        self.topic = topic
        self.producer_id = request.producer_id
        self.name = name
        self.mode = request.producer_access_mode
        self.epoch = request.epoch  # how often its client has opened it again
        self.named_by_user = request.user_provided_producer_name
        self.topic_epoch = request.topic_epoch if request.HasField("topic_epoch") else None
        self.welcome: Callable[[], None] = _nothing

    def succeeds(self, other: "Producer") -> bool:
        """Whether this is the other one come back, before the broker has noticed that it was gone."""
        given = not self.named_by_user and not other.named_by_user
        return given and self.name == other.name and self.epoch > other.epoch


class Producers:
    """The producers of one topic: those who write, and those who wait for exclusive access."""

    def __init__(self) -> None:
        self.epoch = -1  # rises whenever a producer gets the topic for itself
        self._writing: list[Producer] = []
        self._waiting: list[Producer] = []

    def __iter__(self) -> Iterator[Producer]:
        return iter([*self._waiting, *self._writing])  # who waits must not get what the others are about to lose

    def join(self, producer: Producer) -> None:
        """Let a producer in, or into the queue, or raise RefusedError."""
        for other in self:
            if other.name == producer.name:
                if not producer.succeeds(other):
                    raise RefusedError(
                        pb.ProducerBusy, f"Producer with name {producer.name!r} is already connected to topic"
                    )
                other.connection.close_producer(other)
        if producer.mode == pb.Shared:
            if self._waiting or any(other.mode != pb.Shared for other in self._writing):
                raise RefusedError(pb.ProducerBusy, "Topic has an existing exclusive producer")
            self._enter(producer)
            return
        if producer.topic_epoch is not None and producer.topic_epoch < self.epoch:
            raise RefusedError(pb.ProducerFenced, "Topic epoch has already moved: another producer had the topic since")
        if producer.mode == pb.Exclusive and (self._waiting or self._writing):
            raise RefusedError(pb.ProducerFenced, "Topic has existing producers")
        if producer.mode == pb.WaitForExclusive and (self._waiting or self._writing):
            self._waiting.append(producer)
            return
        for other in self:
            other.connection.close_producer(other)
        self._enter(producer)

    def leave(self, producer: Producer) -> None:
        """A producer is gone; the next one that waits for that gets the topic."""
        if producer in self._waiting:
            self._waiting.remove(producer)
            return
        self._writing.remove(producer)
        if not self._writing and self._waiting:
            first = self._waiting.pop(0)
            self._enter(first)
            first.welcome()

    def waits(self, producer: Producer) -> bool:
        """Whether a producer is in the queue."""
        return producer in self._waiting

    def _enter(self, producer: Producer) -> None:
        self._writing.append(producer)
        if producer.mode != pb.Shared:
            self.epoch = self.epoch + 1 if producer.topic_epoch is None else producer.topic_epoch
            producer.topic_epoch = self.epoch


def _nothing() -> None:
    pass
