"""Conformance tests for plug-ins, run by pytest from a short subclass.

A sink::

    from fastwire_daemon.testing import SinkConformance

    class TestMySink(SinkConformance):
        def make_sink(self, path):
            return MySink(path)

An encoder: :class:`EncoderConformance`, with ``encoder = MyEncoder``. A message system:
:class:`fastwire_daemon.testing.system.SystemConformance`, with ``system = "my"``. All check the guarantees of the
contract; class attributes switch off those that a plug-in does not make.
"""

from .encoder import EncoderConformance
from .feed import Feed
from .lock import LongLockWarning
from .sink import SinkConformance

__all__ = ["EncoderConformance", "Feed", "LongLockWarning", "SinkConformance"]
