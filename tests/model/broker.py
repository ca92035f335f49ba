"""Two message systems in miniature: one that gives each partition to one reader in order, and one that shares out rows.

Rows of a partition are numbered from 0. Both redeliver whatever is not acked whenever they like, and both hold the
readers to the promise: a row may be acked only when it is certain to survive.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .world import Choices, Process


@dataclass(frozen=True, slots=True)
class Assigned:
    """Rows of ``partition`` come from now on, beginning with the first that is not acked."""

    partition: int


@dataclass(frozen=True, slots=True)
class Row:
    partition: int
    number: int


class Broker:
    """The parts that both brokers share.

    ``on_ack`` judges each row that is acked for the first time; ``on_expired`` is told the last log entry whose files a
    process has deleted. ``on_erasing`` returns the files that a process has to look into, and ``on_erased`` takes them
    when it has.
    """

    ordered: bool

    def __init__(self, partitions: int, rows: int) -> None:
        self.partitions = partitions
        self.rows = rows
        self.on_ack: Callable[[int, int], None] = lambda partition, number: None
        self.on_expired: Callable[[int], None] = lambda number: None
        self.on_erasing: Callable[[], set[str]] = set
        self.on_erased: Callable[[set[str]], None] = lambda names: None
        self.readers: list[Process] = []

    def produced(self) -> set[tuple[int, int]]:
        return {(partition, number) for partition in range(self.partitions) for number in range(self.rows)}

    def connect(self, reader: Process) -> None:
        self.disconnect(reader)
        self.readers.append(reader)

    def disconnect(self, reader: Process) -> None:
        if reader in self.readers:
            self.readers.remove(reader)

    def receive(self, reader: Process) -> Assigned | Row | None:
        raise NotImplementedError

    def ack(self, partition: int, number: int) -> None:
        raise NotImplementedError

    def disturb(self, choices: Choices) -> None:
        """Redeliver something, or give it to somebody else."""
        raise NotImplementedError

    def finished(self) -> bool:
        raise NotImplementedError

    def floor(self, partition: int) -> int:
        """The row up to which all are acked; -1: none."""
        raise NotImplementedError

    def has_progress(self) -> bool:
        """Return whether any row is acked."""
        raise NotImplementedError


class OrderedBroker(Broker):
    """Failover: each partition has one active reader, acks are cumulative."""

    ordered = True

    def __init__(self, partitions: int, rows: int) -> None:
        super().__init__(partitions, rows)
        self._acked = [-1] * partitions
        self._active: list[Process | None] = [None] * partitions
        self._next: list[int | None] = [None] * partitions  # None: the reader is to be told first

    def connect(self, reader: Process) -> None:
        super().connect(reader)
        for partition in range(self.partitions):
            # Spread: partition 1 goes to the second reader when there is one.
            wanted = self.readers[partition % len(self.readers)]
            if self._active[partition] is not wanted:
                self._assign(partition, wanted)

    def disconnect(self, reader: Process) -> None:
        super().disconnect(reader)
        for partition in range(self.partitions):
            if self._active[partition] is reader:
                self._assign(partition, self.readers[0] if self.readers else None)

    def _assign(self, partition: int, reader: Process | None) -> None:
        self._active[partition] = reader
        self._next[partition] = None

    def receive(
        self, reader: Process, only: int | None = None, most_unacked: int | None = None
    ) -> Assigned | Row | None:
        """With ``only``, an event of this partition. No row follows ``most_unacked`` others that are not acked."""
        for partition in range(self.partitions) if only is None else (only,):
            if self._active[partition] is not reader:
                continue
            number = self._next[partition]
            if number is None:
                self._next[partition] = self._acked[partition] + 1
                return Assigned(partition)
            if number < self.rows and (most_unacked is None or number - self._acked[partition] <= most_unacked):
                self._next[partition] = number + 1
                return Row(partition, number)
        return None

    def send_again(self, reader: Process, partition: int) -> None:
        """Assign a partition of ``reader`` anew."""
        if self._active[partition] is reader:
            self._assign(partition, reader)

    def ack(self, partition: int, number: int) -> None:
        for each in range(self._acked[partition] + 1, number + 1):
            self.on_ack(partition, each)
        self._acked[partition] = max(self._acked[partition], number)

    def disturb(self, choices: Choices) -> None:
        if self.readers:
            self._assign(choices.choose(self.partitions), self.readers[choices.choose(len(self.readers))])

    def finished(self) -> bool:
        return all(acked == self.rows - 1 for acked in self._acked)

    def floor(self, partition: int) -> int:
        return self._acked[partition]

    def has_progress(self) -> bool:
        return any(acked >= 0 for acked in self._acked)


class SharedBroker(Broker):
    """Shared: rows go to whoever asks, acks are individual."""

    ordered = False

    def __init__(self, partitions: int, rows: int) -> None:
        super().__init__(partitions, rows)
        self._acked: set[tuple[int, int]] = set()
        self._out: dict[tuple[int, int], Process] = {}
        self._told: set[Process] = set()

    def connect(self, reader: Process) -> None:
        super().connect(reader)

    def disconnect(self, reader: Process) -> None:
        super().disconnect(reader)
        self._told.discard(reader)
        self._out = {row: holder for row, holder in self._out.items() if holder is not reader}

    def receive(self, reader: Process) -> Assigned | Row | None:
        if reader not in self.readers:
            return None
        if reader not in self._told:
            self._told.add(reader)
            return Assigned(0)
        for row in sorted(self.produced()):
            if row not in self._acked and row not in self._out:
                self._out[row] = reader
                return Row(*row)
        return None

    def ack(self, partition: int, number: int) -> None:
        row = (partition, number)
        if row not in self._acked:
            self.on_ack(partition, number)
            self._acked.add(row)
            self._out.pop(row, None)

    def disturb(self, choices: Choices) -> None:
        # All that a reader holds, or one row, goes out again, to whoever asks first.
        if self._out:
            rows = sorted(self._out)
            row = rows[choices.choose(len(rows))]
            if choices.choose(2):
                holder = self._out[row]
                self._out = {each: other for each, other in self._out.items() if other is not holder}
            else:
                del self._out[row]

    def finished(self) -> bool:
        return self._acked >= self.produced()

    def floor(self, partition: int) -> int:
        number = -1
        while (partition, number + 1) in self._acked:
            number += 1
        return number

    def has_progress(self) -> bool:
        return bool(self._acked)
