"""The client of the daemon's HTTP server: it returns a status, or says why there is none."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastwire_daemon.config import HttpAddress
from fastwire_daemon.service import client
from fastwire_daemon.service.client import NoDaemonError, local_address, read_status

GOOD = json.dumps({"version": "1", "pipelines": {"orders": {"state": "running"}}}).encode()


@contextmanager
def answering(answer: bytes) -> Iterator[HttpAddress]:
    """A server that sends these bytes to whoever connects, and then ends the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            with listener.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(answer)
        except OSError:
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield HttpAddress(*listener.getsockname())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def response(body: bytes, code: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (code.encode(), len(body), body)


def test_the_status_of_a_daemon() -> None:
    with answering(response(GOOD)) as address:
        assert read_status(address)["pipelines"] == {"orders": {"state": "running"}}


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"{", b'{"pipelines": []}', b'{"pipelines": {"a": 1}}', b"[" * 100_000, b"\xff", b"ok\n"]
)
def test_another_server_is_recognised(body: bytes) -> None:
    with answering(response(body)) as address, pytest.raises(NoDaemonError, match="is not a fastwire daemon"):
        read_status(address)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", response(GOOD)[:-3], b"HTTP/1.1 200 OK\r\n" * 200])
def test_a_broken_answer_is_no_answer(answer: bytes) -> None:
    with answering(answer) as address, pytest.raises(NoDaemonError):
        read_status(address)


def test_the_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", len(GOOD))
    with answering(response(GOOD)) as address:
        read_status(address)
    with answering(response(GOOD + b" ")) as address, pytest.raises(NoDaemonError):
        read_status(address)


def test_an_error_of_the_server_is_told() -> None:
    with answering(response(b"", "404 Not Found")) as address, pytest.raises(NoDaemonError, match="answers 404"):
        read_status(address)


def test_nothing_listens(tmp_path: Path) -> None:
    with pytest.raises(NoDaemonError, match=r"^unix:.*: No such file or directory$"):
        read_status(HttpAddress(path=str(tmp_path / "none")))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = HttpAddress(*server.getsockname())
        with pytest.raises(NoDaemonError, match=r": no answer within 0\.05 s$"):
            read_status(address, 0.05)  # the kernel accepts the connection, and nothing answers
    with pytest.raises(NoDaemonError, match=r": Connection refused$"):
        read_status(address)


@pytest.mark.parametrize(
    ("listens", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3")],
)
def test_a_server_on_all_hosts_is_asked_on_this_one(listens: str, asked: str) -> None:
    assert local_address(HttpAddress(listens, 8650)) == HttpAddress(asked, 8650)
