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

import pytest

# A failed assert then shows its values, as in the tests of the plug-in; it must be said before the imports.
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("encoder", "sink", "system")))

from .encoder import EncoderConformance  # noqa: E402
from .feed import Feed  # noqa: E402
from .lock import LongLockWarning  # noqa: E402
from .sink import SinkConformance  # noqa: E402

__all__ = ["EncoderConformance", "Feed", "LongLockWarning", "SinkConformance"]
