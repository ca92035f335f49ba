"""One ZooKeeper node, for brokers that keep their metadata in it."""

import socket
from collections.abc import Callable
from pathlib import Path

from tests.brokers.ports import free_ports
from tests.brokers.process import JavaBroker


class ZooKeeper(JavaBroker):
    """One node, from the jars of the broker that needs it: ``java`` returns its command up to the main class."""

    def __init__(self, folder: Path, java: Callable[[Path], list[str]]) -> None:
        super().__init__(folder)
        self._java = java
        (self.port,) = free_ports(1)

    def command(self) -> list[str]:
        settings = self.folder / "zoo.cfg"
        lines = (f"dataDir={self.folder / 'data'}", f"clientPort={self.port}", "clientPortAddress=127.0.0.1")
        settings.write_text("\n".join((*lines, "admin.enableServer=false", "")))
        return [*self._java(self.folder), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)]

    def healthy(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False
