"""The embedded broker, for daemons that land in a store or in a table."""

from tests.crash.conftest import dev_broker, dev_scene, nursery  # noqa: F401
