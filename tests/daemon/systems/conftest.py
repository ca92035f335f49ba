"""Fixtures of the tests of systems."""

import pytest

from fastwire_daemon.systems.pulsar.client import intake
from fastwire_daemon.systems.pulsar.source import watch


@pytest.fixture
def asks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a broker of Pulsar for its count of permits soon after the last record, and look for silence often."""
    for module in (intake, watch):
        monkeypatch.setattr(module, "QUIET_S", 0.2)
        monkeypatch.setattr(module, "LOOK_S", 0.1)
