"""A schema registry in memory, with as much of the Confluent API as clients of schemas by id use."""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def framed(id: int, data: bytes) -> bytes:
    """Return a value with the header of its schema."""
    return b"\0" + id.to_bytes(4, "big") + data


class SchemaRegistryServer:
    """The registered schemas, and the requests so far."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.requests: list[tuple[str, Mapping[str, str]]] = []
        self.away = False
        self.gate = threading.Event()
        """Requests are answered while it is set."""
        self.gate.set()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def register(self, id: int, schema: Any, **more: Any) -> None:
        self.answers[f"/schemas/ids/{id}"] = (200, json.dumps({"schema": json.dumps(schema), **more}).encode())

    def version(self, subject: str, version: int, schema: Any, **more: Any) -> None:
        body = {"subject": subject, "version": version, "id": 1, "schema": json.dumps(schema), **more}
        self.answers[f"/subjects/{subject}/versions/{version}"] = (200, json.dumps(body).encode())

    def newest(self, subject: str, id: int, schema: Any, **more: Any) -> None:
        """Register a schema as the newest version of a subject."""
        self.register(id, schema, **more)
        body = {"subject": subject, "version": id, "id": id, "schema": json.dumps(schema), **more}
        self.answers[f"/subjects/{subject}/versions/latest"] = (200, json.dumps(body).encode())

    def answer(self, path: str) -> tuple[int, bytes]:
        if self.away:
            return 503, b"maintenance"
        return self.answers.get(path, (404, b'{"error_code": 40403, "message": "Schema not found"}'))


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[SchemaRegistryServer]:
    """Serve an empty registry on a free port of this machine."""
    registry = SchemaRegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.requests.append((self.path, dict(self.headers)))
            registry.gate.wait(60)
            status, body = registry.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
