"""Fixtures of the tests of systems."""

import pytest

from fastwire_daemon.systems.pulsar.source import watch


@pytest.fixture
def asks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a broker of Pulsar for its count of permits soon after the last record, and look for silence often."""
    monkeypatch.setattr(watch, "QUIET_S", 0.2)
    monkeypatch.setattr(watch, "LOOK_S", 0.1)
