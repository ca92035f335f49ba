"""Conformance tests of a message system.

From the bottom: ``scene`` (an embedded broker, a sink in memory, pipelines), ``suite`` (what a subclass sets), and the
tests by subject: ``texts``, ``embedded``, ``delivery``, ``memory``, ``tools`` and ``client``.
"""

from .client import SystemClient
from .delivery import SystemDelivery
from .embedded import SystemBroker
from .memory import SystemMemory
from .suite import Ability
from .texts import SystemTexts
from .tools import SystemTools

__all__ = ["Ability", "SystemConformance"]


class SystemConformance(SystemTexts, SystemBroker, SystemDelivery, SystemMemory, SystemTools, SystemClient):
    """Inherit, set ``system`` to the name of the system, and run pytest.

    The system is found by its name and URL as the commands find it. Every test also checks that the embedded broker has
    recorded no violation of the protocol. ``lacks`` names the abilities that a system does not have, with reasons.
    """
