"""Certainty, in tests, that nothing more is on its way between an embedded broker and its clients."""

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker
from tests.support.source_pipe import until


async def round_trips(broker: PulsarDevBroker) -> None:
    """PING every client of a broker on this loop, twice.

    Before the second PING the broker has done whatever was due. Before the second PONG the clients have read what came
    of that, and the broker has received what they have sent.
    """
    for _ in range(2):
        asked = [one for one in broker.connections if isinstance(one, PulsarConnection)]
        for one in asked:
            one._ping_open = True
            one.send(pb.BaseCommand.PING, ping=pb.CommandPing())
        for one in asked:
            await until(lambda: not one._ping_open or one not in broker.connections, "a PONG")  # noqa: B023
