"""Answers of a store on the wire, as the real library reports them: those that waiting can help, and refusals."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fastwire_daemon.dataset.storage.bucket import Bucket, StoreAwayError, open_bucket
from tests.brokers.certs import make_certificates
from tests.brokers.ports import free_ports
from tests.support.store import LocalBucket


class Server(ThreadingHTTPServer):
    """Gives one answer to all requests."""

    status = 200
    code = ""
    digest = ""
    """The digest of the content in the last request, ``x-amz-content-sha256``."""
    storage_class: str | None = None
    """That of the last request."""
    authorization = ""

    def settings(self, scheme: str) -> dict[str, str]:
        return {
            "endpoint": f"{scheme}://127.0.0.1:{self.server_port}",
            "allow_http": "true",
            "region": "eu-central-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
        }


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.digest = self.headers["x-amz-content-sha256"]
        self.server.authorization = self.headers["authorization"]
        self.server.storage_class = self.headers["x-amz-storage-class"]
        body = f"<Error><Code>{self.server.code}</Code><Message>As it is.</Message></Error>".encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.send_header("etag", "one")
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
    return open_bucket("s3://bucket/orders", server.settings("http"))


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


@pytest.mark.parametrize("asked", ["", "true", "false"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_content_is_signed_where_nothing_else_protects_it(
    server: Server, tmp_path: Path, scheme: str, asked: str
) -> None:
    settings = server.settings(scheme) | ({"sign_payload": asked} if asked else {})
    if scheme == "https":
        files = make_certificates(tmp_path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        settings["ca"] = str(files.ca)
    assert open_bucket("s3://bucket/orders", settings).create("entry", b"content")
    signed = asked == "true" if asked else scheme == "http"
    assert (server.digest == "UNSIGNED-PAYLOAD") is not signed
    assert len(server.digest) == (64 if signed else 16)


def test_a_ca_that_cannot_be_read_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"/none\.pem: No such file"):
        open_bucket("s3://bucket/orders", {**server.settings("https"), "ca": str(tmp_path / "none.pem")})
    (tmp_path / "some.pem").write_text("no certificate")
    with pytest.raises(ValueError, match="No certificates found"):
        open_bucket("s3://bucket/orders", {**server.settings("https"), "ca": str(tmp_path / "some.pem")})


def test_files_alone_have_the_storage_class(server: Server) -> None:
    bucket = open_bucket("s3://bucket/orders", {**server.settings("http"), "storage_class": "STANDARD_IA"})
    bucket.put("entry", b"content")
    assert server.storage_class is None
    upload = bucket.upload("file")
    upload.write(b"content")
    upload.close()
    assert server.storage_class == "STANDARD_IA"


def reached(server: Server, scheme: str, **settings: str) -> str:
    """The error of a request that gets no answer."""
    bucket = open_bucket("s3://bucket/orders", {**server.settings(scheme), **settings})
    with pytest.raises(StoreAwayError) as caught:
        bucket.put("entry", b"content")
    return str(caught.value)


def test_why_a_store_does_not_answer(server: Server, tmp_path: Path) -> None:
    place = f"127.0.0.1:{server.server_port}"
    assert reached(server, "https") == f"https://{place} does not speak TLS"
    files = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    told = reached(server, "https", ca=str(files.other_ca))
    assert told.startswith(f"the certificate of https://{place} is not accepted: ")
    (port,) = free_ports(1)
    nobody = f"http://127.0.0.1:{port}"
    assert reached(server, "http", endpoint=nobody) == f"cannot connect to {nobody}: Connection refused"


def test_the_key_and_the_region_of_a_profile(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[audit]\naws_access_key_id = ours\naws_secret_access_key = hush\n")
    (tmp_path / "config").write_text("[profile audit]\nregion = eu-north-1\n[profile bare]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings = {"endpoint": server.settings("http")["endpoint"], "allow_http": "true"}
    open_bucket("s3://bucket/orders", {**settings, "profile": "audit"}).put("entry", b"content")
    assert "Credential=ours/" in server.authorization
    assert "/eu-north-1/s3/" in server.authorization
    with pytest.raises(ValueError, match="the profile bare has no key"):
        open_bucket("s3://bucket/orders", {**settings, "profile": "bare"})
    with pytest.raises(ValueError, match=r"config profile \(nobody\) could not be found"):
        open_bucket("s3://bucket/orders", {**settings, "profile": "nobody"})


def test_objects_are_deleted_although_others_are_gone(tmp_path: Path) -> None:
    """A folder says so of one that is gone, as some stores do, and its library leaves those behind it."""
    bucket = LocalBucket(tmp_path)
    names = [f"a/{number}" for number in range(40)]
    for name in names[10:]:
        bucket.put(name, b"x")
    bucket.delete(names)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
    bucket.delete(names[:1])
