"""A real Kafka broker of one KRaft node, started from the jars of Maven Central."""

import base64
import json
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.brokers.certs import Certificates, make_certificates
from tests.brokers.maven import cached_jars, java_executable, pom
from tests.brokers.ports import free_ports
from tests.brokers.process import JavaBroker, ends_with_parent
from tests.support.tcp_proxy import Proxy
from tests.support.waiting import eventually

VERSION = "4.1.0"
LOG4J_VERSION = "2.24.3"

USER = "us,er=1"  # of SCRAM, which has to escape it
PLAIN_USER = "alice"  # of PLAIN, whose users are keys in a file
PASSWORD = "a pass: word"
LOGIN_S = 3  # how long a login lasts on the listener that says so

POM = pom(
    "kafka-broker",
    f"""\
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
""",
)

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
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
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

_NO_COORDINATOR_YET = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")


class KafkaBroker(JavaBroker):
    """One broker, its own controller; ``settings`` override what is written above."""

    heap = ("-Xms256m", "-Xmx768m")

    def __init__(self, folder: Path, *, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self._settings = dict(settings or {})
        self._port, self._proxied_port, self._proxy_port, self._controller_port = free_ports(4)
        self._listeners = {"PLAINTEXT": self._port, "PROXIED": self._proxied_port}
        self._cluster_id = new_cluster_id()

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

    def proxy(self) -> Proxy:
        """Return a proxy at the address of its URL; the frames that it counts are Fetch responses with records."""
        return Proxy(self._proxied_port, listen=self._proxy_port, scheme="kafka", least=1024)

    def members(self, group: str) -> int:
        """Return the number of members of a group. The first group of all waits until there is a topic for groups."""
        admin = self.admin
        deadline = time.monotonic() + 30
        while True:
            try:
                return len(admin.describe_consumer_groups([group])[group].result(30).members)
            except KafkaException as exc:
                if exc.args[0].name() not in _NO_COORDINATOR_YET or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def create_topic(
        self, name: str, partitions: int = 1, *, replicas: list[list[int]] | None = None, **settings: str
    ) -> None:
        """Create a topic and wait for it; ``settings`` with _ for dots. ``replicas``: the nodes of each partition."""
        said = {key.replace("_", "."): value for key, value in settings.items()}
        if replicas is None:
            topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=said)
        else:
            topic = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas, config=said)
        admin = self.admin  # it must live until the answer has come
        admin.create_topics([topic])[name].result(30)

    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self.admin
        admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)

    def delete_topic(self, name: str) -> None:
        admin = self.admin
        admin.delete_topics([name])[name].result(30)
        eventually(lambda: not self.has_topic(name))

    def has_topic(self, name: str) -> bool:
        return name in self.admin.list_topics(timeout=30).topics

    def ends(self, topic: str) -> list[int]:
        """The offsets that come next in each partition of a topic."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "nobody", "log_level": 0})
        try:
            numbers = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            return [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in numbers]
        finally:
            consumer.close()

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of the group, by topic and partition."""
        admin = self.admin
        asked = [ConsumerGroupTopicPartitions(group)]
        found = admin.list_consumer_group_offsets(asked)[group].result(30)
        return {(one.topic, one.partition): one.offset for one in found.topic_partitions}

    def stored(self, topic: str, partition: int) -> list[bytes]:
        """The batches (or old message sets) of a partition's first segment, as they stand on the disk."""
        (segment, *_) = sorted((self.folder / "data" / f"{topic}-{partition}").glob("*.log"))
        data, at, found = segment.read_bytes(), 0, []
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12])
            found.append(data[at:end])
            at = end
        return found

    def set_group(self, group: str, **settings: str) -> None:
        """Settings of a group of the newer protocol, with _ for dots."""
        said = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=said)
        admin = self.admin
        admin.incremental_alter_configs([resource])[resource].result(30)

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
        settings = {
            **SETTINGS,
            "listeners": _addresses(self._listeners | {"CONTROLLER": self._controller_port}),
            "advertised.listeners": _addresses(self._listeners | {"PROXIED": self._proxy_port}),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(data),
            **self._settings,
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.folder / "log4j2.xml").write_text(LOG4J)
        java = [
            java_executable(),
            *self.heap,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
            "-cp",
            f"{jars}/*",
        ]
        if not (data / "meta.properties").exists():
            self._format([*java, "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(properties)])
        return [*java, "kafka.Kafka", str(properties)]

    def _format(self, command: list[str]) -> None:
        done = subprocess.run(
            [*ends_with_parent(), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the broker's storage could not be formatted:\n{done.stdout}")


def new_cluster_id() -> str:
    """An id for the storage of a cluster that is new."""
    # The storage tool takes an id that begins with a dash, one in 64, for an option.
    while True:
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not found.startswith("-"):
            return found


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


# Listener: what it wants of a client.
GUARDS = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "BRIEF": "SASL_PLAINTEXT"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class GuardedKafka(KafkaBroker):
    """A broker with a listener for each guard, beside the open one: see ``GUARDS``.

    MUTUAL wants a certificate of a client. BRIEF ends logins after ``LOGIN_S``, and does not know OAUTHBEARER. All
    others with SASL know all mechanisms, and the one user.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.certificates: Certificates = make_certificates(folder / "certs")
        self._listeners |= dict(zip(GUARDS, free_ports(len(GUARDS)), strict=True))
        keys = folder / "certs" / "server-with-key.pem"
        keys.write_bytes(self.certificates.key.read_bytes() + self.certificates.cert.read_bytes())
        kinds = {**dict.fromkeys(("PLAINTEXT", "PROXIED", "CONTROLLER"), "PLAINTEXT"), **GUARDS}
        self._settings |= {
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.mutual.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # whoever comes by the open listener, the broker itself too
            "allow.everyone.if.no.acl.found": "true",
        }
        for name, kind in GUARDS.items():
            if kind.startswith("SASL"):
                self._settings |= _logins(f"listener.name.{name.lower()}", brief=name == "BRIEF")

    def url_of(self, listener: str) -> str:
        """As fastwire takes it."""
        return f"kafka{'+ssl' if GUARDS[listener].endswith('SSL') else ''}://127.0.0.1:{self._listeners[listener]}"

    def servers_of(self, listener: str) -> str:
        """As other clients take it."""
        return f"127.0.0.1:{self._listeners[listener]}"

    def forbid(self, user: str, kind: ResourceType, name: str) -> None:
        """Deny a user everything about a topic or a group; whoever is not named may do all with it."""
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, who, "*", AclOperation.ALL, permission)
            for who, permission in (
                ("User:*", AclPermissionType.ALLOW),
                (f"User:{user}", AclPermissionType.DENY),
            )
        ]
        admin = self.admin
        for made in admin.create_acls(rules).values():
            made.result(30)

    def start(self) -> "GuardedKafka":
        super().start()
        admin = self.admin
        made = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for one in made:
            admin.alter_user_scram_credentials([one])[USER].result(30)
        return self


def _logins(prefix: str, *, brief: bool) -> dict[str, str]:
    modules = "org.apache.kafka.common.security"
    user = f'user_{PLAIN_USER}="{PASSWORD}"'
    said = {
        "PLAIN": f"{modules}.plain.PlainLoginModule required {user};",
        "SCRAM-SHA-256": f"{modules}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{modules}.scram.ScramLoginModule required;",
        "OAUTHBEARER": f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";',
    }
    known = MECHANISMS[:-1] if brief else MECHANISMS
    settings = {f"{prefix}.sasl.enabled.mechanisms": ",".join(known)}
    for name in known:
        settings[f"{prefix}.{name.lower()}.sasl.jaas.config"] = said[name]
        if brief:
            settings[f"{prefix}.{name.lower()}.connections.max.reauth.ms"] = str(LOGIN_S * 1000)
    return settings


def unsecured_token(user: str, *, life_s: float = 3600) -> str:
    """A token that nobody has signed, as the broker takes it where nothing else is configured."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": user, "iat": int(now), "exp": int(now + life_s)})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(encoded) + "."
