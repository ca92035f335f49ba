"""The pipeline of a Kafka source, for tests, and the batches that it reads."""

from typing import Any

from fastwire.coverage import Coverage
from fastwire.grammar import parse_name_pattern
from fastwire.kafka.grammar import GRAMMAR as KAFKA
from fastwire.kafka.names import parse_bootstrap_url
from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire.position import Log
from fastwire.wire.pool import Pool
from fastwire_daemon.config import parse_start
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.systems.kafka.source.kafkasource import KafkaSource
from fastwire_daemon.systems.kafka.source.settings import KafkaSettings
from tests.support.source_pipe import AnyPipe, until


def batch(number: int, rows: int = 10, size: int = 0, compression: Compression = Compression.NONE) -> bytes:
    """Batch ``number`` of a partition: row ``i`` of it has the value ``number:i``, of second ``number``."""
    milli = 1_700_000_000_000 + number * 1000
    values = [b"%d:%d" % (number, row) + b"." * size for row in range(rows)]
    return encode_batch([Record(value=value, timestamp=milli) for value in values], compression=compression)


def batches(first: int, count: int, rows: int = 10, size: int = 0) -> list[bytes]:
    return [batch(number, rows, size) for number in range(first, first + count)]


class KafkaPipe(AnyPipe):
    """Plays the pipeline; metadata grow old quickly, and a Fetch waits a short time, so that no test has to."""

    source: KafkaSource

    def __init__(
        self,
        broker: KafkaDevBroker,
        *topics: str,
        coverage: Coverage | None = None,
        pool: Pool | None = None,
        start: Any = "earliest",
        **more: Any,
    ) -> None:
        super().__init__(coverage, pool)
        self.broker = broker
        pattern = more.pop("pattern", None)
        settings: dict[str, Any] = {
            "url": parse_bootstrap_url(more.pop("url", broker.url)),
            "topics": () if pattern else topics or ("t",),
            "pattern": parse_name_pattern(pattern) if pattern else None,
            "group": "g",
            "protocol": "none",
            "start": parse_start(start, KAFKA),
            "cluster": "c",
            "limits": FetchLimits(
                max_wait_ms=100,
                partition_bytes=more.pop("partition_bytes", 1 << 20),
                session_above=more.pop("session_above", 100),
            ),
            "metadata_max_age_s": 0.2,
        }
        metrics = more.pop("metrics", None)
        self.source = KafkaSource(KafkaSettings(**settings | more), self, self.pool, metrics=metrics)

    def log(self, partition: int = 0) -> Log:
        return next(one for one in self.source.logs if one.partition == str(partition))

    async def drained(self) -> None:
        """Commit, and wait until the group has it all."""
        self.commit()
        wanted = {(topic, n): end for topic in self.source.settings.topics for n, end in self.ends(topic) if end}
        await until(lambda: self.committed() == wanted, f"offsets {wanted}", self.committed)

    def committed(self) -> dict[tuple[str, int], int]:
        """Return the group's offsets of partitions that held anything."""
        return {place: offset for place, offset in self.broker.offsets("g").items() if offset}

    def ends(self, topic: str) -> list[tuple[int, int]]:
        return list(enumerate(self.broker.ends(topic)))
