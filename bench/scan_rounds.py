"""The scan loop over prepared frames and as little else as possible: what ``instructions`` runs under valgrind.

python -m bench.scan_rounds ROUNDS pulsar|kafka|tank|tubemq FILE […]

Each pair of a system and its frames is scanned a few times, and then so many times while valgrind counts.
"""

import sys
from abc import ABC, abstractmethod
from pathlib import Path

from fastwire.columns.scan import CHUNK_FULL, NEED_BYTES, Stop
from fastwire.kafka.reading.response import Planned
from fastwire.kafka.reading.scan import Scanner as KafkaScanner
from fastwire.kafka.reading.slot import SlotTable as KafkaSlots
from fastwire.position import Log, Position
from fastwire.pulsar.reading.scan import Scanner as PulsarScanner
from fastwire.pulsar.reading.slot import SlotTable as PulsarSlots
from fastwire.tank.reading.response import Planned as TankPlanned
from fastwire.tank.reading.scan import Scanner as TankScanner
from fastwire.tank.reading.slot import SlotTable as TankSlots
from fastwire.tubemq.reading.fetched import Planned as TubeMQPlanned
from fastwire.tubemq.reading.scan import Scanner as TubeMQScanner
from fastwire.tubemq.reading.slot import SlotTable as TubeMQSlots
from fastwire.wire.pool import Pool

from .counting import counted

CONSUMER = 1
CORRELATION = 1
FETCH_VERSION = 12
GETS = 2  # responses of TubeMQ, numbered from CORRELATION on: a Broker sends half a MiB in each
TOPIC = "bench"
BUFFER_BYTES = 2 << 20
WARM_ROUNDS = 4  # what is done once is done in these


class Rounds(ABC):
    """A scanner and the frames that it is given over and over, each time new."""

    scanner: PulsarScanner | KafkaScanner | TankScanner | TubeMQScanner

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pool = Pool(1 << 30)

    @abstractmethod
    def renew(self) -> None:
        """Make the same positions new again."""

    def fill(self) -> None:
        """Feed bytes as a socket does."""
        self.renew()
        view = self.scanner.get_buffer()
        view[: len(self.data)] = self.data
        view.release()
        self.scanner.received(len(self.data))

    def work(self) -> None:
        """Do the measured work: scan to the end, and release each chunk."""
        scanner = self.scanner
        while (stop := scanner.scan()) != NEED_BYTES:
            if stop == CHUNK_FULL:
                chunk = scanner.take_chunk()
                assert chunk is not None
                chunk.release()
            else:
                self.go_on(stop)

    def go_on(self, stop: int) -> None:
        """Continue after any other stop than a full chunk."""
        self.scanner.resume()


class PulsarRounds(Rounds):
    """Entries of one consumer."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.slots = PulsarSlots([Log("pulsar", "bench", TOPIC, "0")])
        self.slots.add(CONSUMER, 0, ordered=True)
        self.slots.attach(CONSUMER, 1)
        self.scanner = PulsarScanner(self.slots, self.pool, 1, buffer_bytes=BUFFER_BYTES)

    def renew(self) -> None:
        self.slots.void_staged(CONSUMER)


class AnswerRounds(Rounds):
    """The answer to a request for records, whose end is found behind them."""

    scanner: KafkaScanner | TankScanner | TubeMQScanner

    def go_on(self, stop: int) -> None:
        if stop == Stop.FOUND:
            self.scanner.take_found()
        else:
            super().go_on(stop)


class KafkaRounds(AnswerRounds):
    """A Fetch response."""

    scanner: KafkaScanner

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.slots = KafkaSlots()
        self.slots.add(Log("kafka", "bench", TOPIC, "0"))
        self.scanner = KafkaScanner(self.slots, self.pool, buffer_bytes=BUFFER_BYTES)
        self.planned = Planned(FETCH_VERSION, True, {TOPIC.encode(): {0: (0, 1)}})

    def renew(self) -> None:
        self.slots.attach(0, Position(0, -1), 1)
        self.scanner.plan(CORRELATION, self.planned)


class TankRounds(AnswerRounds):
    """An answer to a consume request."""

    scanner: TankScanner

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.slots = TankSlots()
        self.slots.add(Log("tank", "bench", TOPIC, "0"))
        self.scanner = TankScanner(self.slots, self.pool, buffer_bytes=BUFFER_BYTES)
        self.planned = TankPlanned({TOPIC.encode(): {0: (0, 1)}})

    def renew(self) -> None:
        self.slots.attach(0, Position(1, 0), 1)
        self.scanner.plan(CORRELATION, self.planned)


class TubeMQRounds(AnswerRounds):
    """The responses to some GETs of one partition."""

    scanner: TubeMQScanner

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.slots = TubeMQSlots()
        self.slots.add(Log("tubemq", "bench", TOPIC, "1:0"))
        self.scanner = TubeMQScanner(self.slots, self.pool, buffer_bytes=BUFFER_BYTES)

    def renew(self) -> None:
        self.slots.attach(0, Position(0, 0), 1)
        for number in range(GETS):
            self.scanner.plan(CORRELATION + number, TubeMQPlanned(0, 1))


SYSTEMS: dict[str, type[PulsarRounds | KafkaRounds | TankRounds | TubeMQRounds]] = {
    "pulsar": PulsarRounds,
    "kafka": KafkaRounds,
    "tank": TankRounds,
    "tubemq": TubeMQRounds,
}


def main() -> None:
    """So many rounds of each."""
    for system, frames in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        rounds = SYSTEMS[system](Path(frames).read_bytes())
        for _ in range(WARM_ROUNDS):
            rounds.fill()
            rounds.work()
        with counted():
            for _ in range(int(sys.argv[1])):
                rounds.fill()
                rounds.work()


if __name__ == "__main__":
    main()
