"""GET requests with one deadline: answers that drip, that do not end, that are too large, that are none."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fastwire_daemon.net import httpget


@contextmanager
def answering(*pieces: bytes, endless: bytes = b"") -> Iterator[int]:
    """A server on a free port that sends ``pieces``, each on its own, and then ``endless`` until the client leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    client.recv(65536)
                    for piece in pieces:
                        client.sendall(piece)
                    while endless:
                        client.sendall(endless)
                        gone.wait(0.01)
                except OSError:
                    pass  # the client has left

        gone = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            gone.set()
            thread.join()


def ask(port: int, most_s: float = 60.0) -> tuple[int, bytes]:
    url = f"http://127.0.0.1:{port}/"
    return asyncio.run(httpget.get(url, {}, tls=None, server_name=None, most_s=most_s, most_bytes=1000))


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"]
)
def test_an_answer_that_drips_ends_at_the_deadline(start: bytes) -> None:
    """Each byte comes in time, and all of them never do."""
    with answering(start, endless=b"H") as port, pytest.raises(TimeoutError, match="no whole answer within 1 s"):
        ask(port, 0.6)


def test_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError, match="within 1 s"):
        ask(silent.getsockname()[1], 0.6)


@pytest.mark.parametrize(
    "answer",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"he", b"llo"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"],
        [b"HTTP/1.0 200 OK\r\n\r\nhel", b"lo"],
    ],
)
def test_answers_in_pieces(answer: list[bytes]) -> None:
    with answering(*answer) as port:
        assert ask(port) == (200, b"hello")


@pytest.mark.parametrize("head", [b"Content-Length: 99999999999", b"X: y", b"Transfer-Encoding: chunked"])
def test_an_answer_that_is_too_large(head: bytes) -> None:
    body = b"fffffff\r\n" if b"chunked" in head else b""
    with (
        answering(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n%s" % (head, body), endless=b"x" * 5000) as port,
        pytest.raises(OSError, match="more than 1000 bytes"),
    ):
        ask(port)


def test_what_is_no_answer() -> None:
    with answering(b"no HTTP\r\n\r\n") as port, pytest.raises(OSError, match="Bad status line"):
        ask(port)
