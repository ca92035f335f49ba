"""Dev brokers that break the protocol, each in one way.

Entries that are damaged are so every time they are sent; what happens to a connection happens ``times`` times and then
no more, so that a client which recovers gets everything in the end.
"""

from struct import Struct
from typing import Any

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import encode_payload, split_payload
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.pulsar.subscriptions import ConnectedConsumer
from fastwire_daemon.devbroker.topiclog import StoredEntry

Command = pb.BaseCommand
_SIZES = Struct(">II")


class _Hostile(PulsarDevBroker):
    """``every``: which entries are hit, by index; ``times``: how often what hits a connection happens."""

    def __init__(self, options: PulsarOptions | None = None, *, every: int = 3, times: int = 1) -> None:
        super().__init__(options)
        self.every = every
        self.times = times
        self.hits = 0

    def hit(self, index: int) -> bool:
        """Return whether to damage this entry, if only ``times`` entries are damaged; counts it."""
        if self.hits >= self.times or (index + 1) % self.every:
            return False
        self.hits += 1
        return True


class _Connection(PulsarConnection):
    """Changes the body of an entry, or what goes out around it."""

    broker: Any

    def send_message(
        self, consumer: ConnectedConsumer, index: int, entry: StoredEntry, left: int | None, redelivery_count: int
    ) -> int:
        self.before(consumer, index)
        size = super().send_message(consumer, index, self.changed(index, entry), left, redelivery_count)
        self.after(consumer, index)
        return size

    def changed(self, index: int, entry: StoredEntry) -> StoredEntry:
        return entry

    def before(self, consumer: ConnectedConsumer, index: int) -> None: ...

    def after(self, consumer: ConnectedConsumer, index: int) -> None: ...


def _with_body(entry: StoredEntry, body: bytes) -> StoredEntry:
    return StoredEntry(body, entry.messages, entry.first, entry.time_ms, entry.stored_ms)


class BadCrc(_Hostile):
    """Every so many entries one bit of the payload is wrong."""

    class connection(_Connection):  # noqa: N801
        def changed(self, index: int, entry: StoredEntry) -> StoredEntry:
            if (index + 1) % self.broker.every:
                return entry
            return _with_body(entry, entry.body[:-1] + bytes((entry.body[-1] ^ 1,)))


class Reticent(BadCrc):
    """Does not tell its count of permits either."""

    class connection(BadCrc.connection):  # noqa: N801
        def handle(self, command: pb.BaseCommand, body: bytes) -> None:
            if command.type == Command.CONSUMER_STATS:
                return self.send_error(command.consumerStats.request_id, pb.NotAllowedError, "not today")
            return super().handle(command, body)


class HostileSizes(_Hostile):
    """Every so many entries announce what cannot be, under a good checksum; ``sizes`` are fields of the metadata.

    By default an uncompressed size of 4 GiB less one byte.
    """

    def __init__(self, options: PulsarOptions | None = None, *, every: int = 3, **sizes: Any) -> None:
        super().__init__(options, every=every)
        self.sizes = sizes or {"uncompressed_size": 0xFFFFFFFF, "compression": pb.LZ4}

    class connection(_Connection):  # noqa: N801
        def changed(self, index: int, entry: StoredEntry) -> StoredEntry:
            if (index + 1) % self.broker.every:
                return entry
            metadata, payload = split_payload(entry.body)
            metadata.MergeFrom(pb.MessageMetadata(**self.broker.sizes))
            return _with_body(entry, encode_payload(metadata, bytes(payload)))


class BadLengths(_Hostile):
    """Now and then a frame whose sizes cannot be; the connection is lost to it.

    ``kind``: "total" (2 GiB announced), "short" (less than a command size), "command" (beyond its frame), "garbage" (a
    command that is no protobuf message), "metadata" (its size beyond the frame; no checksum, so nothing else is wrong).
    """

    def __init__(self, kind: str, options: PulsarOptions | None = None, *, every: int = 3, times: int = 1) -> None:
        super().__init__(options, every=every, times=times)
        self.kind = kind

    class connection(_Connection):  # noqa: N801
        def changed(self, index: int, entry: StoredEntry) -> StoredEntry:
            if self.broker.kind == "metadata" and self.broker.hit(index):
                return _with_body(entry, b"\x7f\xff\xff\xff" + entry.body[4:])
            return entry

        def before(self, consumer: ConnectedConsumer, index: int) -> None:
            if self.broker.kind != "metadata" and self.broker.hit(index):
                self.queue(BAD_FRAMES[self.broker.kind])


BAD_FRAMES = {
    "total": _SIZES.pack(0x7FFFFFFF, 10) + b"\x08\x09\x4a\x06" + bytes(1024),
    "short": _SIZES.pack(3, 0),
    "command": _SIZES.pack(20, 17) + bytes(16),
    "garbage": _SIZES.pack(12, 8) + b"\xff" * 8,
}


class UnknownCommands(_Hostile):
    """Before every so many entries come commands that no client of today knows; the entries are sound."""

    class connection(_Connection):  # noqa: N801
        def before(self, consumer: ConnectedConsumer, index: int) -> None:
            if (index + 1) % self.broker.every == 0:
                self.broker.hits += 1
                for body in UNKNOWN_COMMANDS:
                    self.queue(_SIZES.pack(4 + len(body), len(body)), body)


UNKNOWN_COMMANDS = (
    b"\x08\x63",  # type 99
    b"\x08\xff\x7f\xfa\x3f\x03abc",  # type 16383 with a field of its own
    b"\x08\x12\x92\x01\x05\xf8\x7f\x07\x08\x09",  # a PING with fields that are new
)


class CutInFrame(_Hostile):
    """The connection ends in the middle of a MESSAGE frame."""

    class connection(_Connection):  # noqa: N801
        def after(self, consumer: ConnectedConsumer, index: int) -> None:
            if self.broker.hit(index):
                whole = b"".join(self._out)
                _, size = _SIZES.unpack_from(whole)
                self._out[:] = [whole[: len(whole) - max(1, size)]]
                self.close()


class NeverAnswers(_Hostile):
    """Commands of the given kinds are taken and never answered, ``times`` times."""

    def __init__(
        self, *kinds: "pb.BaseCommand.Type", options: PulsarOptions | None = None, times: int = 1 << 30
    ) -> None:
        super().__init__(options, times=times)
        self.kinds = kinds

    class connection(_Connection):  # noqa: N801
        def handle(self, command: pb.BaseCommand, body: bytes) -> None:
            if command.type in self.broker.kinds and self.broker.hits < self.broker.times:
                self.broker.hits += 1
            else:
                super().handle(command, body)


class WrongRequestIds(_Hostile):
    """Answers carry a request id that nobody used. With ``then_right`` the right answer follows each of them."""

    def __init__(self, options: PulsarOptions | None = None, *, then_right: bool = True, times: int = 1 << 30) -> None:
        super().__init__(options, times=times)
        self.then_right = then_right

    class connection(_Connection):  # noqa: N801
        def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
            for name, part in parts.items():
                if part.DESCRIPTOR.fields_by_name.get("request_id") and not name.startswith("close_"):
                    if self.broker.hits >= self.broker.times:
                        break
                    self.broker.hits += 1
                    wrong = type(part)()
                    wrong.CopyFrom(part)
                    wrong.request_id = part.request_id + 1_000_000
                    super().send(kind, **{name: wrong})
                    if not self.broker.then_right:
                        return
            super().send(kind, **parts)


class ClosingConsumers(_Hostile):
    """Consumers are closed by the broker soon after every so many entries, ``times`` times."""

    class connection(_Connection):  # noqa: N801
        def after(self, consumer: ConnectedConsumer, index: int) -> None:
            if (index + 1) % self.broker.every == 0:
                self.broker.loop.call_soon(self._close, consumer, index)

        def _close(self, consumer: ConnectedConsumer, index: int) -> None:
            if self.consumers.get(consumer.consumer_id) is consumer and self.broker.hit(index):
                self.close_consumer(consumer)


class OverDelivery(_Hostile):
    """Sends ``extra`` messages more than it has permits for."""

    def __init__(self, options: PulsarOptions | None = None, *, extra: int = 10_000) -> None:
        super().__init__(options, times=extra)

    class connection(_Connection):  # noqa: N801
        def after(self, consumer: ConnectedConsumer, index: int) -> None:
            missing = consumer.debited + 1 - consumer.granted
            if missing > 0 and self.broker.hits < self.broker.times:
                self.broker.hits += missing
                consumer.granted += missing
                consumer.window += missing


class StatesPermits(_Hostile):
    """Every message states ``permits`` in ``message_permits``, whatever it holds and whatever is debited for it."""

    def __init__(self, permits: int, options: PulsarOptions | None = None) -> None:
        super().__init__(options)
        self.permits = permits

    class connection(_Connection):  # noqa: N801
        def queue(self, *parts: bytes) -> None:
            sizes, command = parts[0][: _SIZES.size], pb.BaseCommand()
            total, size = _SIZES.unpack(sizes)
            if len(parts[0]) == _SIZES.size + size:
                command.ParseFromString(parts[0][_SIZES.size :])
            if command.type == Command.MESSAGE:
                command.message.message_permits = self.broker.permits
                stated = command.SerializeToString()
                parts = (_SIZES.pack(total - size + len(stated), len(stated)) + stated, *parts[1:])
            super().queue(*parts)


class Repeats(_Hostile):
    """Every so many entries are sent twice, one right behind the other, both debited."""

    class connection(_Connection):  # noqa: N801
        def after(self, consumer: ConnectedConsumer, index: int) -> None:
            if (index + 1) % self.broker.every == 0:
                entry = consumer.subscription.log[index]
                consumer.debited += entry.messages
                PulsarConnection.send_message(self, consumer, index, entry, None, 0)
