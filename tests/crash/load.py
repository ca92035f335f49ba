"""Numbered records of every kind for an embedded broker, some of them damaged, and what has to land of them."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Generic, TypeVar

from fastwire.kafka.producing import payload as kafka
from fastwire.pulsar.format import payload as pulsar
from fastwire.tank.producing import bundle as tank
from fastwire.tubemq.protocol import request as tubemq
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.devbroker.tubemq.topics import StoredMessage
from tests.brokers.admin import partition_names
from tests.support.kafka.markers import encode_marker
from tests.support.sequence_audit import numbered

TIME_MS = 1_700_000_000_000
CORRUPT = 0.03  # of the entries
LARGEST = 3000  # bytes of a value

E = TypeVar("E")


class Load(ABC, Generic[E]):
    """``wanted`` are the numbers that must land once, ``corrupt`` counts the entries that must become dead letters."""

    def __init__(self, partitions: int, dice: random.Random) -> None:
        self.wanted: list[int] = []
        self.corrupt = 0
        self.partitions = partitions
        self.encode: Callable[[bytes], bytes] = bytes
        """Makes the value of a record from a numbered one."""
        self._dice = dice
        self._next = 0

    def add(self, entries: int) -> None:
        """Store about so many entries in each partition."""
        for partition in range(self.partitions):
            self._store(partition, [one for _ in range(entries) for one in self._make(partition)])

    @abstractmethod
    def end(self) -> None:
        """Store what belongs to messages that are still incomplete."""

    @abstractmethod
    def _make(self, partition: int) -> Sequence[E]:
        """The next entry, or several that belong together."""

    @abstractmethod
    def _store(self, partition: int, entries: Sequence[E]) -> None: ...

    def _value(self, size: int = 0, *, lands: bool = True) -> bytes:
        """The next numbered value; of ``size`` bytes, or a few."""
        number, self._next = self._next, self._next + 1
        if lands:
            self.wanted.append(number)
        return self.encode(numbered(number, size or self._dice.randrange(20, 200)))


class PulsarLoad(Load[pulsar.Entry]):
    """Batches and single messages by every codec; chunked messages of several producers, their parts interleaved."""

    def __init__(self, broker: PulsarDevBroker, topic: str, partitions: int, dice: random.Random) -> None:
        super().__init__(partitions, dice)
        self._broker = broker
        self._names = partition_names(topic, partitions)
        self._incomplete: list[list[list[pulsar.Entry]]] = [[] for _ in self._names]
        self._sequence = 0

    def end(self) -> None:
        for partition, messages in enumerate(self._incomplete):
            while messages:
                self._store(partition, [self._part_of(partition)])

    def _make(self, partition: int) -> Sequence[pulsar.Entry]:
        kind = self._dice.random()
        self._sequence += 10
        made: list[pulsar.Entry] = []
        if kind < 0.08:
            self._begin_chunked(partition)
        elif kind < 0.08 + CORRUPT:
            made.append(self._corrupt())
        elif kind < 0.3:
            made.append(self._single())
        else:
            made.append(self._batch())
        while self._incomplete[partition] and self._dice.random() < 0.4:
            made.append(self._part_of(partition))
        return made

    def _begin_chunked(self, partition: int) -> None:
        value = self._value(self._dice.randrange(400, LARGEST))
        parts = pulsar.encode_chunks(
            pulsar.Record(value=value),
            chunk_bytes=len(value) // self._dice.randrange(2, 5) + 1,
            producer_name=f"chunks-{self._sequence}",
            sequence_id=self._sequence,
            publish_time=TIME_MS,
            compression=self._codec(),
        )
        self._incomplete[partition].append(list(parts))

    def _part_of(self, partition: int) -> pulsar.Entry:
        """The next part of any message that is incomplete."""
        messages = self._incomplete[partition]
        message = self._dice.choice(messages)
        part = message.pop(0)
        if not message:
            messages.remove(message)
        return part

    def _codec(self) -> pulsar.Compression:
        return self._dice.choice(list(pulsar.Compression))

    def _single(self) -> pulsar.Entry:
        return pulsar.encode_single_entry(
            pulsar.Record(value=self._value(), key="k"),
            producer_name="p",
            sequence_id=self._sequence,
            publish_time=TIME_MS,
            compression=self._codec(),
        )

    def _batch(self, *, lands: bool = True) -> pulsar.Entry:
        rows = range(self._dice.randrange(1, 12))
        return pulsar.encode_batch_entry(
            [pulsar.Record(value=self._value(lands=lands), key=f"k{row % 5}") for row in rows],
            producer_name="p",
            sequence_id=self._sequence,
            publish_time=TIME_MS,
            compression=self._codec(),
        )

    def _corrupt(self) -> pulsar.Entry:
        """A batch with one wrong bit among its last bytes: the checksum says so."""
        self.corrupt += 1
        sound = self._batch(lands=False)
        at = len(sound.body) - 1 - self._dice.randrange(4)
        body = sound.body[:at] + bytes([sound.body[at] ^ 1 << self._dice.randrange(8)]) + sound.body[at + 1 :]
        number = sound.sequence_id
        return pulsar.Entry(body, sound.messages, number, number, TIME_MS, batched=True)

    def _store(self, partition: int, entries: Sequence[pulsar.Entry]) -> None:
        self._broker.append(self._names[partition], entries)


class _Damaged(bytes):
    """A batch that is sound as yet, and to be stored with one wrong bit."""


class KafkaLoad(Load[bytes]):
    """Batches by every codec, with holes as compaction leaves them, and transactions that are committed or aborted."""

    def __init__(self, broker: KafkaDevBroker, topic: str, partitions: int, dice: random.Random) -> None:
        super().__init__(partitions, dice)
        self._broker = broker
        self._topic = topic
        self._producer_id = 100

    def end(self) -> None:
        return  # nothing is ever incomplete

    def _make(self, partition: int) -> Sequence[bytes]:
        kind = self._dice.random()
        if kind < CORRUPT:
            self.corrupt += 1
            return [_Damaged(self._batch(lands=False))]
        if kind < 0.15:
            return self._transaction()
        return [self._batch()]

    def _batch(self, *, lands: bool = True, producer_id: int = -1) -> bytes:
        rows = range(self._dice.randrange(1, 12))
        spread = 1 if self._dice.random() < 0.8 else 3
        records = [
            kafka.Record(
                value=self._value(lands=lands),
                key=b"k%d" % (row % 5),
                headers=(("h", b"v"),) if row % 3 == 0 else (),
                timestamp=TIME_MS + row,
                offset_delta=row * spread,
            )
            for row in rows
        ]
        transactional = producer_id >= 0
        return kafka.encode_batch(
            records,
            compression=self._dice.choice(list(kafka.Compression)),
            producer_id=producer_id,
            producer_epoch=0 if transactional else -1,
            base_sequence=0 if transactional else -1,
            transactional=transactional,
        )

    def _transaction(self) -> list[bytes]:
        commit = self._dice.random() < 0.5
        self._producer_id += 1
        batches = [self._batch(lands=commit, producer_id=self._producer_id) for _ in range(self._dice.randrange(1, 3))]
        marker = encode_marker(commit=commit, producer_id=self._producer_id, producer_epoch=0, timestamp=TIME_MS)
        return [*batches, marker]

    def _store(self, partition: int, entries: Sequence[bytes]) -> None:
        for damaged, batches in groupby(entries, lambda entry: isinstance(entry, _Damaged)):
            if damaged:
                for batch in batches:
                    self._broker.append_damaged(self._topic, batch, self._dice.randrange(32), partition)
            else:
                self._broker.append(self._topic, batches, partition)


class TankLoad(Load[bytes]):
    """Plain, compressed and sparse bundles, the last with holes as compaction leaves them."""

    def __init__(self, broker: TankDevBroker, topic: str, partitions: int, dice: random.Random) -> None:
        super().__init__(partitions, dice)
        self._broker = broker
        self._topic = topic

    def end(self) -> None:
        return  # nothing is ever incomplete

    def _make(self, partition: int) -> Sequence[bytes]:
        """One bundle, whose sequences begin behind the last one of the partition."""
        damaged = self._dice.random() < CORRUPT
        self.corrupt += damaged
        sparse = not damaged and self._dice.random() < 0.2
        spread = self._dice.randrange(1, 4)
        first = self._broker.end_positions(self._topic)[partition].a + self._dice.randrange(3)
        messages = [
            tank.Message(
                value=self._value(lands=not damaged),
                key=b"k%d" % (row % 5) if row % 3 else None,
                timestamp=TIME_MS + row // 2,
                sequence=first + row * spread,
            )
            for row in range(self._dice.randrange(1, 12))
        ]
        bundle = tank.encode_bundle(messages, compress=self._dice.random() < 0.4, sparse=sparse)
        if damaged:
            bundle = bytes((bundle[0] | 2,)) + bundle[1:]  # an undefined codec
        self._store(partition, [bundle])
        return ()

    def _store(self, partition: int, entries: Sequence[bytes]) -> None:
        if entries:
            self._broker.append(self._topic, entries, partition)


class TubeMQLoad(Load[StoredMessage]):
    """Messages with and without attributes; what is damaged has a checksum that is not its own."""

    def __init__(self, broker: TubeMQDevBroker, topic: str, partitions: int, dice: random.Random) -> None:
        super().__init__(partitions, dice)
        self._broker = broker
        self._topic = topic

    def end(self) -> None:
        return  # nothing is ever incomplete

    def _make(self, partition: int) -> Sequence[StoredMessage]:
        made = []
        for _ in range(self._dice.randrange(1, 12)):
            damaged = self._dice.random() < CORRUPT / 4
            self.corrupt += damaged
            attributes = {"colour": "red"} if self._dice.random() < 0.5 else {}
            size = self._dice.randrange(20, LARGEST) if self._dice.random() < 0.1 else 0
            payload, flag = tubemq.encode_payload(self._value(size, lands=not damaged), attributes)
            checksum = tubemq.payload_checksum(payload) ^ damaged
            made.append(StoredMessage(partition, 0, payload, flag, checksum, None))
        return made

    def _store(self, partition: int, entries: Sequence[StoredMessage]) -> None:
        self._broker.append_stored(self._topic, entries)
