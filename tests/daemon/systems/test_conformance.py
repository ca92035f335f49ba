"""All systems pass the conformance tests of a system."""

from typing import ClassVar

from fastwire_daemon.testing.system import SystemConformance
from fastwire_daemon.testing.system.delivery import SystemDelivery
from fastwire_daemon.testing.system.memory import SystemMemory
from fastwire_daemon.testing.system.tools import SystemTools


class TestPulsar(SystemConformance):
    system = "pulsar"


class TestPulsarShared(SystemDelivery):
    system = "pulsar"
    source: ClassVar = {"subscription_type": "shared"}
    lacks: ClassVar = {"ends": "records come in no order that could end"}
    ordered = False


class TestPulsarKeyShared(TestPulsarShared):
    source: ClassVar = {"subscription_type": "key_shared"}


class TestPulsarExclusive(SystemDelivery):
    system = "pulsar"
    source: ClassVar = {"subscription_type": "exclusive"}
    lacks: ClassVar = {"takeover": "an exclusive subscription refuses a second consumer"}


class TestKafka(SystemConformance):
    system = "kafka"
    source: ClassVar = {"metadata_max_age": "200ms"}


class TestKafkaClassic(SystemDelivery):
    system = "kafka"
    source: ClassVar = {"metadata_max_age": "200ms", "group_protocol": "classic", "session_timeout": "6s"}


class TestKafkaAlone(SystemDelivery):
    system = "kafka"
    source: ClassVar = {"metadata_max_age": "200ms", "group_protocol": "none"}


class TestTank(SystemConformance):
    system = "tank"
    source: ClassVar = {"metadata_max_age": "200ms"}
    lacks: ClassVar = {
        "groups": "the dataset is the only cursor",
        "recreation": "a topic has no id, so a log that begins again stops until incarnation is raised",
        "headers": "a message is a key and a value",
        "null values": "a message has a value, which may be empty",
    }


class TestTubeMQ(SystemConformance):
    system = "tubemq"
    source: ClassVar = {"heartbeat": "50ms"}
    lacks: ClassVar = {
        "exact ends": "messages have no offset of their own",
        "keys": "a message has none",
        "null values": "a message has a value, which may be empty",
        "partial confirmation": "a COMMIT confirms all messages that were fetched",
        "recreation": "a topic that is created again stops its partitions",
    }


class TestTubeMQByNodes(SystemDelivery, SystemMemory, SystemTools):
    """Client balance: each member takes the partitions of its number."""

    system = "tubemq"
    source: ClassVar = {"heartbeat": "50ms", "balance": "client"}
    lacks: ClassVar = TestTubeMQ.lacks


class TestToy(SystemConformance):
    system = "toy"
    lacks: ClassVar = {
        "groups": "the dataset is the only cursor",
        "recreation": "a deleted topic stops its partitions",
        "ends": "the toy reads on and on",
        "headers": "a record is a key and a value",
    }
