"""The contract of the embedded brokers: what the one of each system provides to demo, commands and tests.

A system's folder has the same modules as its siblings as far as the protocols allow it: ``cluster`` (topics, options
and faults, without any request), ``topics`` (what is stored), ``connection`` (frames), ``logins``, modules of requests
(``metadata``, ``producers``, …) and ``broker`` (the table of requests over all of that).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from fastwire.position import Position
from fastwire.systems import package_of

from .server import Server

T = TypeVar("T")


class RefusedError(Exception):
    """A request is answered with an error, and its connection stays: a sound client may cause it.

    ``code`` is an error code of the system's own protocol.
    """

    def __init__(self, code: Any, text: str = "") -> None:
        super().__init__(text or f"error {int(code)}")
        self.code = code


class Faults(Generic[T]):
    """Faults of one kind that a test has injected. Each is taken once, the oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()

    def inject(self, fault: T, times: int = 1) -> None:
        """Let the next ``times`` takers have this fault, behind those that were injected before."""
        self._waiting.extend([fault] * times)

    def take(self) -> T | None:
        """Return the next fault, or None if there is none."""
        return self._waiting.popleft() if self._waiting else None


class DevBroker(Server, ABC):
    """An embedded broker of any system: a ``Server`` with topics in memory.

    ``Server`` has what does not depend on topics: ``start``, ``stop``, ``restart``, ``url``, ``violations``, and the
    faults of connections. The methods here may be called from any thread. Unknown topics raise KeyError.
    """

    default_port: ClassVar[int]
    """The port on which real brokers of the system listen."""

    usual_codec: ClassVar[str] = "LZ4"
    """The compression that producers of the system usually choose, in capitals."""

    keyed: ClassVar[bool] = True
    """Records may have keys."""

    @abstractmethod
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """Make a topic.

        With 0 partitions it is not partitioned if the system has such topics, else it has as many as a topic that a
        client creates by using it. Raises ValueError if the topic exists.
        """

    @abstractmethod
    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a partitioned topic more partitions: ``partitions`` in all."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records and the progress of all groups in it."""

    @abstractmethod
    def produce(
        self,
        name: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        keys: Sequence[bytes] | None = None,
        codec: str = "NONE",
    ) -> None:
        """Store records as one batch with the time of the broker's clock, without the network.

        ``codec`` is the name of a compression in capitals; a system that lacks it raises KeyError.
        """

    @abstractmethod
    def end_positions(self, name: str) -> list[Position]:
        """Return the end of each partition of a topic: the position behind its last record."""

    def backlog(self, name: str, group: str) -> int:
        """Count the records of a topic that a group (a subscription) has not committed (acknowledged).

        Raises KeyError for an unknown one; a system without groups knows none.
        """
        raise KeyError(group)


def dev_broker(system: str, *, partitions: int = 0) -> DevBroker:
    """Make the embedded broker of a system by its name: that of its folder, and of its scheme.

    ``partitions`` is the number of partitions of topics that clients create by using them; 0 is the system's default.
    Only the modules of that system are imported.
    """
    made = import_module(package_of(system, __package__, "devbroker")).make(partitions)
    assert isinstance(made, DevBroker)
    return made
