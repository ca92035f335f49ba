"""The client of a schema registry: one question an id, login, TLS, references, and answers that are none."""

import gc
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config.decode import RegistryConfig
from fastwire_daemon.net import schemaregistry
from fastwire_daemon.net.schemaregistry import RegistryAwayError, SchemaRegistry, UnknownSchemaError, registry_of
from tests.brokers.certs import make_certificates
from tests.support.schema_registry import SchemaRegistryServer, serving
from tests.support.waiting import eventually

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with serving() as made:
        yield made


def client(server: SchemaRegistryServer, **keys: Any) -> SchemaRegistry:
    return SchemaRegistry(RegistryConfig.model_validate({"url": server.url, **keys}))


def test_a_schema_is_asked_for_once(server: SchemaRegistryServer) -> None:
    server.register(7, ORDER)
    registry = client(server)
    assert {registry.schema(7) for _ in range(3)} == {registry.schema(7)}
    assert (registry.schema(7).kind, json.loads(registry.schema(7).text)) == ("AVRO", ORDER)
    assert server.paths == ["/schemas/ids/7"]


def test_all_who_wait_get_the_answer_to_one_question(server: SchemaRegistryServer) -> None:
    server.register(7, ORDER)
    server.gate.clear()
    registry, seen = client(server), []
    threads = [threading.Thread(target=lambda: seen.append(registry.schema(7))) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.requests, "a request")
    server.gate.set()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert server.paths == ["/schemas/ids/7"]


def test_a_path_of_the_url_is_kept(server: SchemaRegistryServer) -> None:
    server.answers["/apis/ccompat/v7/schemas/ids/7"] = (200, b'{"schema": "{}"}')
    config = RegistryConfig.model_validate({"url": f"{server.url}/apis/ccompat/v7/"})
    assert SchemaRegistry(config).schema(7).text == "{}"


def test_an_unknown_id_is_asked_for_again(server: SchemaRegistryServer) -> None:
    registry = client(server)
    with pytest.raises(UnknownSchemaError, match="Schema not found"):
        registry.schema(7)
    server.register(7, ORDER)
    assert registry.schema(7).kind == "AVRO"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((503, b"maintenance"), "answers 503 Service Unavailable$"),
        ((401, b'{"error_code": 401, "message": "no"}'), "answers 401 Unauthorized$"),
        ((401, b"<html>log in"), "answers 401 Unauthorized$"),
        ((404, b"<html>no such page"), "answers 404 Not Found: what answers is not a schema registry"),
        ((200, b"<html>"), "answers without JSON: what answers is not a schema registry: check registry.url"),
        ((200, b"[" * 100_000), "answers without JSON"),
        ((200, b"\xff"), "answers without JSON"),
        ((200, b"[]"), "answers without JSON"),
        ((200, b'{"schema": 5}'), "answers without a schema"),
        (
            (200, b'{"schema": "{}", "references": [{"subject": "a", "version": "x"}]}'),
            "reference without subject and version",
        ),
        ((302, b""), "answers 302 Found: what answers is not a schema registry"),
    ],
)
def test_an_answer_without_a_schema_is_worth_a_retry(
    server: SchemaRegistryServer, answer: tuple[int, bytes], message: str
) -> None:
    server.answers["/schemas/ids/7"] = answer
    registry = client(server)
    with pytest.raises(RegistryAwayError, match=message):
        registry.schema(7)
    server.register(7, ORDER)
    assert registry.schema(7).kind == "AVRO"


def test_an_answer_that_is_too_large(server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemaregistry, "LARGEST_ANSWER", 100)
    server.answers["/schemas/ids/7"] = (200, b'{"schema": "%s"}' % (b" " * 100))
    with pytest.raises(RegistryAwayError, match="more than 100 bytes"):
        client(server).schema(7)


def test_a_registry_that_cannot_be_reached() -> None:
    with serving() as server:
        registry = client(server)
    with pytest.raises(RegistryAwayError, match="Connection refused"):
        registry.schema(7)


def test_references_are_asked_for_in_an_order_that_defines_names_first(server: SchemaRegistryServer) -> None:
    def refer(*subjects: str) -> list[dict[str, Any]]:
        return [{"name": subject, "subject": subject, "version": 2} for subject in subjects]

    server.register(7, "top", references=refer("a", "b"))
    server.version("a", 2, "A", references=refer("c"))
    server.version("b", 2, "B", references=refer("c", "a"))
    server.version("c", 2, "C", references=refer("b"))  # a circle ends
    assert client(server).schema(7).references == ('"B"', '"C"', '"A"')
    assert len(server.paths) == 4


def test_logins(server: SchemaRegistryServer, tmp_path: Path) -> None:
    server.register(7, ORDER)
    (tmp_path / "password").write_text("sesame\n")
    client(server, auth={"user": "Ann", "password_file": str(tmp_path / "password")}).schema(7)
    client(server, auth={"token": "abc.def"}).schema(7)
    client(server).schema(7)
    assert [headers.get("Authorization") for _, headers in server.requests] == [
        "Basic QW5uOnNlc2FtZQ==", "Bearer abc.def", None,
    ]  # fmt: skip
    with pytest.raises(RegistryAwayError, match=r"no credentials for .*: .*missing"):
        client(server, auth={"token_file": str(tmp_path / "missing")}).schema(7)


async def test_a_token_on_a_thread_whose_loop_runs(server: SchemaRegistryServer) -> None:
    """As in a notebook."""
    server.register(7, ORDER)
    client(server, auth={"token": "abc.def"}).schema(7)
    assert [headers.get("Authorization") for _, headers in server.requests] == ["Bearer abc.def"]


def test_tls_is_verified(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert, certificates.key)
    with serving(context) as server:
        server.register(7, ORDER)
        with pytest.raises(RegistryAwayError, match="its certificate is not trusted"):
            client(server).schema(7)
        trusting = {"ca": str(certificates.ca)}
        assert client(server, tls=trusting).schema(7).kind == "AVRO"
        with pytest.raises(RegistryAwayError, match="its certificate is not trusted"):
            client(server, tls={**trusting, "server_name": "other.example"}).schema(7)


def test_a_registry_that_nobody_uses_is_forgotten(server: SchemaRegistryServer) -> None:
    """Secrets change, and the daemon is reloaded for years."""
    config = RegistryConfig.model_validate({"url": server.url, "auth": {"token": "of-today"}})
    used = registry_of(config)
    assert registry_of(config) is used
    del used
    gc.collect()
    assert config not in [each.config for each in schemaregistry._registries]


def test_equal_configurations_share_a_cache(server: SchemaRegistryServer) -> None:
    def config(password: str) -> RegistryConfig:
        return RegistryConfig.model_validate({"url": server.url, "auth": {"user": "Ann", "password": password}})

    assert registry_of(config("a")) is registry_of(config("a"))
    assert registry_of(config("a")) is not registry_of(config("b"))
