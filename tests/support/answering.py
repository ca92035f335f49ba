"""A server that speaks no protocol: fixed bytes for every client."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """The port of a server that answers with these bytes whatever it reads, and closes; with None, of a silent one."""

    def serve() -> None:
        held = []
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                break
            if answer is None:
                held.append(line)
                continue
            with closing(line):
                line.settimeout(0.2)  # a client of TANK waits for the server
                with suppress(TimeoutError):
                    line.recv(1 << 16)
                line.sendall(answer)
        for line in held:
            line.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(60)
