"""The embedded Master and Broker as a cluster for the rules of TubeMQ."""

from itertools import count

from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker


class Embedded:
    """The embedded cluster, with topics made as they are asked for."""

    def __init__(self, broker: TubeMQDevBroker) -> None:
        self.broker = broker
        self._numbers = count(1)

    @property
    def master_port(self) -> int:
        return self.broker.ports[0]

    @property
    def broker_port(self) -> int:
        return self.broker.ports[1]

    def fresh_topic(self) -> str:
        name = f"t{next(self._numbers)}"
        self.broker.create_topic(name, 2)
        return name

    flushed_topic = fresh_topic
