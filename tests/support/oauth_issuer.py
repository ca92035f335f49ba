"""A tiny OAuth 2 issuer on 127.0.0.1: gives tokens to one client, in good and bad moods."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

CLIENT_ID = "landing"
CLIENT_SECRET = "hunter2-is-the-secret"


class Issuer:
    """``answers`` are given to the next token requests instead of tokens: a status and a body, or None for silence."""

    def __init__(self) -> None:
        self.life: object = 3600  # expires_in; None leaves it out
        self.discovery: dict[str, Any] | None = None
        self.answers: list[tuple[int, object] | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.forms: list[dict[str, str]] = []  # what was asked with
        self.discoveries = 0
        self.given: dict[str, float] = {}  # tokens, and when they end on the clock of time.monotonic
        self.port = 0
        self.scheme = "http"
        self.mint: Callable[[float], str] = lambda life: f"issued-{len(self.forms)}"  # makes a token of so many seconds

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def seconds_left(self, token: str) -> float | None:
        """Return the claims of a token, as a broker that trusts this issuer finds them."""
        end = self.given.get(token)
        return None if end is None else end - time.monotonic()

    def key_file(self, folder: Path, **changed: Any) -> Path:
        """A key as official clients have it."""
        key = {"type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        file = folder / "key.json"
        file.write_text(json.dumps(key | {"issuer_url": self.url, "client_email": "landing@example.com"} | changed))
        return file

    async def discover(self, request: web.Request) -> web.Response:
        self.discoveries += 1
        return web.json_response(self.discovery or {"issuer": self.url, "token_endpoint": f"{self.url}/oauth/token"})

    async def token(self, request: web.Request) -> web.Response:
        form = {str(name): str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else (200, None)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        status, body = answer
        if body is not None:
            text = body if isinstance(body, str) else json.dumps(body)
            return web.Response(status=status, text=text, headers={"Location": "http://else.example"})
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            words = f"no client {form.get('client_id')} with {form.get('client_secret')}"
            return web.json_response({"error": "invalid_client", "error_description": words}, status=401)
        life = self.life if isinstance(self.life, int | float) else 3600
        token = self.mint(life)
        self.given[token] = time.monotonic() + life
        answered = {"access_token": token, "token_type": "Bearer", "expires_in": self.life}
        return web.json_response({name: value for name, value in answered.items() if value is not None})


@asynccontextmanager
async def issuing(tls: ssl.SSLContext | None = None) -> AsyncIterator[Issuer]:
    """An issuer that answers while the block lasts."""
    issuer = Issuer()
    issuer.scheme = "https" if tls else "http"
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.discover)
    app.router.add_post("/oauth/token", issuer.token)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        issuer.port = runner.addresses[0][1]
        yield issuer
    finally:
        await runner.cleanup()
