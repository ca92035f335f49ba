"""A real Kafka broker of one KRaft node, started from the jars of Maven Central."""

import base64
import socket
import subprocess
import uuid
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.brokers.maven import cached_jars, java_executable
from tests.brokers.ports import free_ports
from tests.brokers.process import JavaBroker, ends_with_parent

__all__ = ["VERSION", "KafkaBroker"]

VERSION = "4.1.0"
LOG4J_VERSION = "2.24.3"

POM = f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fastwire.tests</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>{LOG4J_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-1.2-api</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d{HH:mm:ss.SSS} [%t] %-5level %logger{1} - %msg%n"/></Console>
  </Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.io.buffer.size": "524288",
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
}


class KafkaBroker(JavaBroker):
    """One broker, its own controller; ``settings`` override what is written above."""

    def __init__(self, folder: Path, *, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self._settings = dict(settings or {})
        self._port, self._controller_port = free_ports(2)
        self._cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")

    @property
    def servers(self) -> str:
        """As other clients take it."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """As fastwire takes it."""
        return f"kafka://{self.servers}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def admin(self) -> AdminClient:
        """The official client's administration."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic and wait for it; ``settings`` with _ for dots."""
        said = {key.replace("_", "."): value for key, value in settings.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=said)
        admin = self.admin  # it must live until the answer has come
        admin.create_topics([topic])[name].result(30)

    def delete_topic(self, name: str) -> None:
        admin = self.admin
        admin.delete_topics([name])[name].result(30)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """What the group has committed, by topic and partition."""
        admin = self.admin
        asked = [ConsumerGroupTopicPartitions(group)]
        found = admin.list_consumer_group_offsets(asked)[group].result(30)
        return {(one.topic, one.partition): one.offset for one in found.topic_partitions}

    def healthy(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                pass
        except OSError:
            return False
        try:
            return bool(self.admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def command(self) -> list[str]:
        jars = cached_jars(f"kafka-{VERSION}", POM)
        data = self.folder / "data"
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}"
        settings = {
            **SETTINGS,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(data),
            **self._settings,
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.folder / "log4j2.xml").write_text(LOG4J)
        java = [
            java_executable(),
            "-Xms256m",
            "-Xmx768m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
            "-cp",
            f"{jars}/*",
        ]
        if not (data / "meta.properties").exists():
            formatted = [*java, "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(properties)]
            subprocess.run([*ends_with_parent(), *formatted], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        return [*java, "kafka.Kafka", str(properties)]
