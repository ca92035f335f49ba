"""A Kafka broker of 3.9 that stores the oldest message formats: with ZooKeeper, and told to be of an older release."""

from pathlib import Path

from tests.brokers.kafka import KafkaBroker
from tests.brokers.maven import cached_jars, java_executable, pom
from tests.brokers.zookeeper import ZooKeeper

VERSION = "3.9.1"

POM = pom(
    "kafka-broker",
    f"""\
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId><version>1.7.36</version>
    </dependency>
""",
)

LOG4J = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss} [%t] %p %c %m%n
"""

# Metadata without KRaft know message.format.version, as long as the release between brokers is below 3.0.
SETTINGS = {
    "broker.id": "1",
    "inter.broker.protocol.version": "2.8",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
}


def _java(folder: Path) -> list[str]:
    settings = folder / "log4j.properties"
    settings.write_text(LOG4J)
    jars = cached_jars(f"kafka-{VERSION}", POM)
    return [
        java_executable(),
        "-Xms128m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j.configuration=file:{settings}",
        "-cp",
        f"{jars}/*",
    ]


class OldKafka(KafkaBroker):
    """One broker with a ZooKeeper of its own. It has no KIP-848."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._zookeeper = ZooKeeper(folder / "zookeeper", _java)

    def start(self) -> "OldKafka":
        self._zookeeper.start()
        super().start()
        return self

    def stop(self, *, at_once: bool = False) -> None:
        super().stop(at_once=at_once)
        self._zookeeper.stop(at_once=True)

    def magics(self, topic: str, partition: int) -> set[int]:
        """The versions of everything in the first segment of a partition, as it stands on the disk."""
        return {batch[16] for batch in self.stored(topic, partition)}

    def command(self) -> list[str]:
        address = f"PLAINTEXT://127.0.0.1:{self.port}"
        settings = {
            **SETTINGS,
            "listeners": address,
            "advertised.listeners": address,
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper.port}",
            "log.dirs": str(self.folder / "data"),
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return [*_java(self.folder), "kafka.Kafka", str(properties)]
