"""All systems pass the conformance tests of a system."""

from typing import ClassVar

from fastwire_daemon.testing.system import SystemConformance


class TestPulsar(SystemConformance):
    system = "pulsar"


class TestKafka(SystemConformance):
    system = "kafka"
    source: ClassVar = {"metadata_max_age": "200ms"}


class TestToy(SystemConformance):
    system = "toy"
