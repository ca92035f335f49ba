"""Answers of a store on the wire, as the real library reports them: those that waiting can help, and refusals."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fastwire_daemon.dataset.bucket import Bucket, StoreAwayError, open_bucket


class Server(ThreadingHTTPServer):
    """Gives one answer to all requests."""

    status = 200
    code = ""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = f"<Error><Code>{self.server.code}</Code><Message>As it is.</Message></Error>".encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def bucket(server: Server) -> Bucket:
    return open_bucket(
        "s3://bucket/orders",
        {
            "endpoint": f"http://127.0.0.1:{server.server_port}",
            "allow_http": "true",
            "region": "eu-central-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
        },
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "SlowDown"), (429, "SlowDown"), (500, "InternalError"), (400, "RequestTimeout")],
)
def test_a_store_that_throttles_or_fails_is_waited_for(bucket: Bucket, server: Server, status: int, code: str) -> None:
    server.status, server.code = status, code
    with pytest.raises(StoreAwayError, match=f"^the store refuses it: {code}: As it is\\.$") as caught:
        bucket.create("entry", b"content")
    assert bucket.lacks(caught.value) == "the store"


@pytest.mark.parametrize(("status", "code"), [(400, "EntityTooLarge"), (400, "ExpiredToken"), (403, "AccessDenied")])
def test_a_refusal_is_not_waited_for(bucket: Bucket, server: Server, status: int, code: str) -> None:
    server.status, server.code = status, code
    with pytest.raises(OSError, match=f"^the store refuses it: {code}: ") as caught:
        bucket.create("entry", b"content")
    assert bucket.lacks(caught.value) is None


@pytest.mark.parametrize(("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict")])
def test_an_object_that_exists_is_no_error(bucket: Bucket, server: Server, status: int, code: str) -> None:
    server.status, server.code = status, code
    assert not bucket.create("entry", b"content")
