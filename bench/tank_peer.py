"""A socket that is read as fast as Python can, frame headers only: the floor under every TANK client.

    python -m bench.tank_peer HOST:PORT TOPIC PARTITIONS MESSAGES BATCH BATCH_BYTES

Two consume requests for all partitions are in flight all the time; nothing is looked at but the sizes of the frames.
Prints one JSON line like the other consumers.
"""

import itertools
import socket
import sys

from fastwire.tank.format.message import FRAME_HEAD, encode_frame
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition

from .kafka_peer import Meter

FETCH_BYTES = 1 << 20
AHEAD = 2


def main() -> None:
    """Read so many messages."""
    host, _, port = sys.argv[1].rpartition(":")
    topic = sys.argv[2]
    partitions, messages, batch, batch_bytes = map(int, sys.argv[3:])
    together = max(FETCH_BYTES // batch_bytes, 1)  # bundles in a chunk: all are of one size
    buffer = memoryview(bytearray(1 << 20))
    meter = Meter(messages)
    with socket.create_connection((host, int(port))) as sock:
        sock.recv(FRAME_HEAD, socket.MSG_WAITALL)  # the ping

        def ask(number: int) -> None:
            sequence = number * together * batch + 1
            parts = tuple(FetchPartition(partition, sequence, FETCH_BYTES) for partition in range(partitions))
            request = ConsumeRequest(((topic, parts),))
            sock.sendall(encode_frame(request.kind, request.encode(number + 1)))

        for number in range(AHEAD):
            ask(number)
        for number in itertools.count(AHEAD):
            head = sock.recv(FRAME_HEAD, socket.MSG_WAITALL)
            left = int.from_bytes(head[1:], "little")
            found = left // batch_bytes  # the header of the answer is smaller than a bundle
            ask(number)
            while left:
                left -= sock.recv_into(buffer[: min(left, len(buffer))])
            if not meter.took(found * batch):
                break
    meter.tell()


if __name__ == "__main__":
    main()
