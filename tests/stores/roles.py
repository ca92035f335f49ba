"""A service that gives credentials which end, as those of a container's role do."""

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.stores.servers import KEY, SECRET

# A process has two clients, and a request may be on the way for a while.
NEWEST = 6
# Clients renew credentials some minutes before their end: these are so near to it that they last for ``fresh_s``.
RENEWED_S = 300.0


class RoleService(ThreadingHTTPServer):
    """Gives the key of the tests' stores with a token, a new one each ``fresh_s`` seconds. A context manager."""

    daemon_threads = True

    def __init__(self, folder: Path, fresh_s: float = 1.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fresh_s = fresh_s
        self.given: list[str] = []
        """Tokens so far, the newest last."""
        self._authority = folder / "role-token"
        self._authority.write_text("let me in")
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead a client here."""
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{self.server_port}/role",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(self._authority),
        }

    def accepts(self, token: str | None) -> bool:
        """Return True if a store takes the token: it is one of the newest."""
        return token in self.given[-NEWEST:]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: RoleService

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        token = f"token-{len(self.server.given)}"
        self.server.given.append(token)
        ends = datetime.now(UTC) + timedelta(seconds=RENEWED_S + self.server.fresh_s)
        said = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": token, "Expiration": ends.isoformat()}
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
