"""All systems pass the conformance tests of a system."""

from typing import ClassVar

import pytest

from fastwire_daemon.testing.system import SystemConformance
from fastwire_daemon.testing.system.delivery import SystemDelivery
from tests.support.alone import without_groups


class TestPulsar(SystemConformance):
    system = "pulsar"


class TestPulsarShared(SystemDelivery):
    system = "pulsar"
    source: ClassVar = {"subscription_type": "shared"}
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


class TestToy(SystemConformance):
    system = "toy"


class TestToyAlone(SystemConformance):
    system = "toy"
    lacks: ClassVar = {"groups": "its brokers keep no progress in this variant"}

    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_groups(monkeypatch)
