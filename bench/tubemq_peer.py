"""A socket that is read as fast as Python can, without a look: the floor under every TubeMQ client.

    python -m bench.tubemq_peer HOST:PORT TOPIC PARTITIONS MESSAGES BATCH FRAME_BYTES

A GET of each partition is in flight all the time. Prints one JSON line like the other consumers.
"""

import itertools
import socket
import sys

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method, encode_request
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.protocol.request import ConsumerRequests

from .kafka_peer import Meter

STORE = 10_000  # the server's partitions are those with number 0 of each store
TIMEOUT_MS = 10_000


def main() -> None:
    """Read so many messages."""
    host, _, port = sys.argv[1].rpartition(":")
    broker, topic = Broker(1, host, int(port)), sys.argv[2]
    partitions, messages, batch, frame_bytes = map(int, sys.argv[3:])
    places = [BrokerPartition(broker, topic, number * STORE) for number in range(partitions)]
    consumer = ConsumerRequests("bench_127.0.0.1-1-1-Pull-raw", "bench-raw")
    buffer = memoryview(bytearray(1 << 20))
    meter = Meter(messages)
    with socket.create_connection((host, int(port))) as sock:

        def read(left: int) -> None:
            while left:
                left -= sock.recv_into(buffer[: min(left, len(buffer))])

        def ask(serial: int) -> None:
            body = consumer.get(places[serial % partitions])
            sock.sendall(encode_request(serial, Method.GET, body, TIMEOUT_MS))

        for place in places:
            body = consumer.register(place, pb.AuthorizedInfo(visitAuthorizedToken=-2))
            sock.sendall(encode_request(0, Method.BROKER_REGISTER, body, TIMEOUT_MS))
            sock.recv(len(buffer))
        for serial in range(partitions):
            ask(serial)
        for serial in itertools.count(partitions):
            read(frame_bytes)
            ask(serial)
            if not meter.took(batch):
                break
    meter.tell()


if __name__ == "__main__":
    main()
