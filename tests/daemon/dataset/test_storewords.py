"""Errors of object stores in words: from real answers to the library."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from obstore.store import from_url

from fastwire_daemon.dataset.storage.bucket import Bucket, StoreAwayError, open_bucket
from fastwire_daemon.dataset.storage.words import said

KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "allow_http": "true"}


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[Bucket]:
    """A bucket at a server that gives this answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Be silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield open_bucket("s3://b/x", {**KEYS, "endpoint": f"http://127.0.0.1:{server.server_port}"})
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (400, "ExpiredToken", "get a new one, or use a profile or a role that renews it"),
        (403, "RequestTimeTooSkewed", "the clock of this machine is wrong: set it"),
        (403, "AccessDenied", "the key needs the rights to list, and to get, put and delete objects"),
        (403, "InvalidAccessKeyId", "check the key and its secret"),
        (400, "AuthorizationHeaderMalformed", "set store.region to that of the bucket"),
    ],
)
def test_what_the_store_says_comes_with_what_to_do(status: int, code: str, hint: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    with answering(status, body) as bucket, pytest.raises(OSError, match="refuses it") as caught:
        bucket.put("k", b"x")
    assert str(caught.value) == f"the store refuses it: {code}: no ({hint})"
    assert not isinstance(caught.value, StoreAwayError)


def test_another_region() -> None:
    with answering(301, b"<Error/>") as bucket, pytest.raises(OSError, match=r"refers to another region: set store\.r"):
        bucket.put("k", b"x")


def test_a_page_is_no_object() -> None:
    """A proxy that answers everything with its page must not be taken for a store, whatever is asked."""
    with answering(200, b"<html>log in</html>", content_type="text/html") as bucket:
        for ask in (lambda: bucket.put("k", b"x"), lambda: bucket.get("k"), lambda: bucket.head("k")):
            with pytest.raises(StoreAwayError, match="what answers is not an object store"):
                ask()


def test_no_credentials() -> None:
    text = (
        "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 22.9ms - Server returned "
        "non-2xx status code: 403 Forbidden: denied\n\nDebug source:\nGeneric {"
    )
    assert said(text).startswith(
        "there are no credentials: store and the environment have none, and the machine, which"
    )


def test_silence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"http://127.0.0.1:{server.getsockname()[1]}"
        store = from_url(
            "s3://b",
            config={"endpoint": place, "access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"},
            client_options={"allow_http": True, "timeout": "100ms"},
            retry_config={"max_retries": 0},
        )
        bucket = Bucket("s3://b", store, store)
        with pytest.raises(StoreAwayError, match=rf"{place} has not answered"):
            bucket.head("k")
    long = "Generic S3 error: Error performing PUT https://s3/b/k in 30.001691675s - HTTP error: error sending request"
    assert said(f"{long}\n\nsource: TimedOut") == "https://s3 has not answered within 30 s"
