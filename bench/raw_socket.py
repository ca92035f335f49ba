"""A socket read as fast as Python can, frame headers only: the floor under every client, ours too.

    python -m bench.raw_socket URL TOPIC MESSAGES BATCH [crc]

Subscribes to every partition, grants permits for everything, and counts frames without looking into them; with
``crc`` it computes the CRC-32C of all bytes. Prints one JSON line like the other consumers.
"""

import json
import socket
import sys
import time
from struct import Struct
from urllib.parse import urlsplit

import crc32c

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command, encode_command
from fastwire.pulsar.protocol.ack import encode_flow

BUFFER = 1 << 20
PERMITS = 0x7FFFFFFF
SIZES = Struct(">II")
Command = pb.BaseCommand


def ask(sock: socket.socket, kind: "pb.BaseCommand.Type", **parts: object) -> pb.BaseCommand:
    """Send a command and return the next frame, which is its answer."""
    sock.sendall(encode_command(Command(type=kind, **parts)))  # type: ignore[arg-type]
    head = sock.recv(8, socket.MSG_WAITALL)
    total, size = SIZES.unpack(head)
    return decode_command(sock.recv(total - 4, socket.MSG_WAITALL)[:size])


def open_all(url: str, topic: str) -> socket.socket:
    """Connect and subscribe to every partition; nothing was granted yet."""
    place = urlsplit(url)
    sock = socket.create_connection((place.hostname, place.port))
    ask(sock, Command.CONNECT, connect=pb.CommandConnect(client_version="raw", protocol_version=19))
    metadata = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=1)
    found = ask(sock, Command.PARTITIONED_METADATA, partitionMetadata=metadata).partitionMetadataResponse.partitions
    for number in range(found):
        wanted = pb.CommandSubscribe(
            topic=f"{topic}-partition-{number}",
            subscription="raw",
            subType=pb.CommandSubscribe.Exclusive,
            initialPosition=pb.CommandSubscribe.Earliest,
            consumer_id=number,
            request_id=number + 2,
        )
        ask(sock, Command.SUBSCRIBE, subscribe=wanted)
    sock.sendall(b"".join(encode_flow(number, PERMITS) for number in range(found)))
    return sock


def read(sock: socket.socket, frames: int, checked: bool) -> tuple[float, float]:
    """Read so many frames, stepping from header to header; CPU and wall seconds behind the first bytes."""
    buffer = bytearray(BUFFER)
    view = memoryview(buffer)
    filled = sock.recv_into(view)
    cpu, wall = time.process_time(), time.perf_counter()
    at = 0  # of the next header; may lie beyond what is there
    while True:
        while filled - at >= 4:
            at += 4 + int.from_bytes(view[at : at + 4], "big")
            frames -= 1
            if not frames:
                return time.process_time() - cpu, time.perf_counter() - wall
        if at < filled:
            rest = bytes(view[at:filled])
            buffer[: len(rest)] = rest
            filled, at = len(rest), 0
        else:
            filled, at = 0, at - filled
        came = sock.recv_into(view[filled:])
        if not came:
            raise SystemExit(f"the server has closed the connection, {frames} frames before the end")
        if checked:
            crc32c.crc32c(view[filled : filled + came])
        filled += came


def main() -> None:
    """Read and tell what it took."""
    url, topic, messages, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    cpu, wall = read(open_all(url, topic), messages // batch, "crc" in sys.argv[5:])
    print(json.dumps({"rows": messages, "cpu_us_per_row": cpu / messages * 1e6, "rows_per_s": round(messages / wall)}))


if __name__ == "__main__":
    main()
