"""Tests that a plug-in runs with one line of pytest, and what they are made of.

A sink::

    from fastwire_daemon.testing import SinkConformance

    class TestMySink(SinkConformance):
        def make_sink(self, path):
            return MySink(path)

An encoder: :class:`EncoderConformance`, with ``encoder = MyEncoder``. Both check the promises of the contract; those
that a plug-in does not make are switched off by class attributes.
"""

from .encoder import EncoderConformance
from .feed import Feed
from .lock import LongLockWarning
from .sink import SinkConformance

__all__ = ["EncoderConformance", "Feed", "LongLockWarning", "SinkConformance"]
