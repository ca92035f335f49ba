"""A variant of the toy system without groups."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from fastwire_daemon.config.source import SourceConfig
from fastwire_daemon.systems.base import System
from fastwire_toy.config import ToyConnection
from fastwire_toy.source import ToySource
from fastwire_toy.system import ToySystem

__all__ = ["ADVICE", "without_groups"]

ADVICE = "the protocol has no TLS: use a tunnel"


class AloneConfig(ToyConnection, SourceConfig):
    """Source of records: topics of the toy system."""

    lacks: ClassVar[Mapping[str, str]] = {"tls": ADVICE}


def without_groups(patch: pytest.MonkeyPatch) -> None:
    """Take the groups from the toy system: each source has one of its own, under which the broker knows nothing."""
    for module in ("config.SOURCE", "system.ToySourceConfig"):
        patch.setattr(f"fastwire_toy.{module}", AloneConfig)
    patch.setattr(ToySystem, "group_word", "")
    patch.setattr(ToySystem, "sharing", System.sharing)
    patch.setattr(ToySource, "_keys", lambda source, partition: partition.keys | {"group": str(id(source))})
