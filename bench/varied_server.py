"""The replaying server with VARIETY different entries instead of one, so that a compressor meets no repetition.

Same arguments and answers as ``replay_server``. Frames of small entries are joined beforehand, so they need as much
memory as they send.
"""

from fastwire.pulsar.format.payload import (
    Compression,
    Entry,
    Record,
    encode_block_entry,
    encode_single_entry,
    encode_values,
)
from fastwire_daemon.devbroker.pulsar.frame import MessageHeader

from . import replay_server as replay
from .message import Messages

VARIETY = 64
SINGLE_VARIETY = 8192
TIME = 1_700_000_000_000


class Varied(replay.Plan):
    """A plan whose entries differ."""

    bodies: tuple[bytes, ...]


def make_plan(messages: int, size: int, batch: int, codec: Compression, partitions: int) -> Varied:
    """Build the entries that are sent in turn; the first stands for all where only one is asked."""
    source = Messages(size)

    def entry(number: int) -> Entry:
        if not batch:
            return encode_single_entry(
                Record(value=source.value(number), key=source.key(number).decode()),
                producer_name="replay",
                sequence_id=number,
                publish_time=TIME + number,
                compression=codec,
            )
        numbers = range(number * batch, (number + 1) * batch)
        block = encode_values(
            [source.value(each) for each in numbers], numbers[0], [source.key(each) for each in numbers]
        )
        return encode_block_entry(
            block, batch, producer_name="replay", sequence_id=numbers[0], publish_time=TIME + number, compression=codec
        )

    count = -(-messages // max(batch, 1))
    entries = [entry(number) for number in range(min(count, VARIETY if batch else SINGLE_VARIETY))]
    plan = Varied(entries[0], count, partitions)
    object.__setattr__(plan, "bodies", tuple(each.body for each in entries))
    return plan


class Frames(replay.Frames):
    """All frames of one consumer of one partition."""

    def __init__(self, plan: replay.Plan, consumer_id: int, partition: int) -> None:
        assert isinstance(plan, Varied)
        bodies = plan.bodies
        header = MessageHeader(consumer_id, partition)
        self.count = plan.of_partition(partition)
        self.permits = plan.entry.messages
        self.size = len(plan.entry.body) + 64
        first = max(partition, 0)  # partitions do not send the same at the same time
        if self.size >= replay.JOINED_BELOW:
            self._parts = [
                (memoryview(header.encode((replay.LEDGER, replay.FIRST_ENTRY + n), len(body))), memoryview(body))
                for n in range(self.count)
                for body in (bodies[(first + n) % len(bodies)],)
            ]
            self._whole: memoryview | None = None
            return
        whole = bytearray()
        self._at = [0]
        for n in range(self.count):
            body = bodies[(first * 977 + n) % len(bodies)]
            whole += header.encode((replay.LEDGER, replay.FIRST_ENTRY + n), len(body)) + body
            self._at.append(len(whole))
        self._whole = memoryview(bytes(whole))

    def cut(self, first: int, count: int) -> list[memoryview]:
        """Return ``count`` frames from ``first`` on, as pieces to be sent."""
        if self._whole is not None:
            return [self._whole[self._at[first] : self._at[first + count]]]
        return [piece for parts in self._parts[first : first + count] for piece in parts]


def main() -> None:
    """Serve like ``replay_server``, with these two instead of its own."""
    replay.make_plan = make_plan
    replay.Frames = Frames  # type: ignore[misc]
    replay.main()


if __name__ == "__main__":
    main()
