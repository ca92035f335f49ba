"""OAuth 2 client credentials: a token, cached until shortly before it expires (spec: pulsar 2.3; RFC 6749 4.4)."""

import asyncio
import json
import ssl
from typing import Any

import aiohttp

from fastwire.errors import FastwireError

from ...config import ConfigError, OAuth2Config, TlsConfig, check_issuer_url
from ...runtime.logs import get_logger
from ...runtime.shared import shared
from ..httpget import body_of
from ..tls import ClientTls
from .base import AuthError, UnavailableError
from .client_key import ClientKey, read_client_key

DISCOVERY = "/.well-known/openid-configuration"
REQUEST_TIMEOUT_S = 10.0
LARGEST_ANSWER = 1 << 20
LARGEST_TOKEN = 64 << 10
# A token is renewed when a tenth of its life is left, but not more than a minute before its end.
EARLY_PART = 0.1
MOST_EARLY_S = 60.0
# Status codes after which a retry may help; any other refusal concerns the client's identity or the configuration.
PASSING = frozenset({408, 425, 429})

log = get_logger("auth")


class OAuth2Credentials:
    """A token from an issuer, fetched once for all concurrent callers; the client's key is read for each fetch."""

    method = "token"

    def __init__(self, config: OAuth2Config, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._trust = TlsConfig() if config.ca is None else TlsConfig.model_validate({"ca": str(config.ca)})
        self._tls: ClientTls | None = None  # made at the first use: loading the system's certificates is slow
        self._token: bytes | None = None
        self._renew_at = 0.0
        self._ends_at = 0.0
        self._fetching: dict[str, asyncio.Task[bytes]] = {}

    async def data(self) -> bytes | None:
        """Return the cached token, or a new one if it expires soon. Raises AuthError or UnavailableError."""
        loop = asyncio.get_running_loop()
        if self._token is not None and loop.time() < self._renew_at:
            return self._token
        try:
            return await shared(self._fetching, "token", self._fetch)
        except FastwireError as exc:
            if self._token is None or loop.time() >= self._ends_at:
                raise
            log.warning("the token cannot be renewed early; the old one is still valid", error=str(exc))
            return self._token

    def forget(self, data: bytes | None) -> None:
        """Fetch a new token at the next use, unless the cached one is newer than ``data``."""
        if self._token == data:
            self._token = None

    def check(self) -> str:
        """Read the key; return a short summary. Raises AuthError."""
        key = _sound(read_client_key(self._config))
        return f"tokens for client {key.client_id} from {key.issuer_url}"

    async def _fetch(self) -> bytes:
        key = _sound(read_client_key(self._config))
        asked_at = asyncio.get_running_loop().time()
        try:
            self._tls = self._tls or ClientTls(self._trust)
        except ConfigError as exc:
            raise AuthError(f"the issuer cannot be trusted: {exc}") from None
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            issuer = _Issuer(session, self._tls.context(), key)
            endpoint = await issuer.find_endpoint()
            token, life_s = await issuer.ask_token(endpoint, self._config.audience, self._config.scope)
        self._token = token
        self._ends_at = asked_at + life_s
        self._renew_at = self._ends_at - min(life_s * EARLY_PART, MOST_EARLY_S)
        return token


class _Issuer:
    """The requests to an issuer for one token. Every error names the URL and hides the client's secret."""

    def __init__(self, session: aiohttp.ClientSession, context: ssl.SSLContext, key: ClientKey) -> None:
        self._session = session
        self._context = context
        self._key = key

    async def find_endpoint(self) -> str:
        """Return the URL of the token endpoint. Raises AuthError or UnavailableError."""
        url = self._key.issuer_url.rstrip("/") + DISCOVERY
        endpoint = (await self._ask("GET", url)).get("token_endpoint")
        if not isinstance(endpoint, str):
            raise AuthError(f"{url} names no token_endpoint")
        try:
            return check_issuer_url(endpoint)
        except ValueError as exc:
            raise AuthError(f"the token_endpoint that {url} names {exc}") from None

    async def ask_token(self, endpoint: str, audience: str | None, scope: str | None) -> tuple[bytes, float]:
        """Return a token and its lifetime in seconds; 0 if the issuer names none, so that the token is used once."""
        form = {
            "grant_type": "client_credentials",
            "client_id": self._key.client_id,
            "client_secret": self._key.client_secret,
        }
        form |= {name: value for name, value in (("audience", audience), ("scope", scope)) if value}
        answer = await self._ask("POST", endpoint, form)
        token, life = answer.get("access_token"), answer.get("expires_in", 0)
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise AuthError(f"{endpoint} answered without a valid access_token")
        if not token or len(token) > LARGEST_TOKEN:
            raise AuthError(f"{endpoint} returned a token of {len(token)} bytes")
        return token.encode(), _seconds(life)

    async def _ask(self, method: str, url: str, form: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            # A redirect could lead the secret anywhere, and out of TLS.
            async with self._session.request(
                method, url, data=form, ssl=self._context, allow_redirects=False, headers={"Accept": "application/json"}
            ) as response:
                body = await body_of(response, LARGEST_ANSWER)
        except TimeoutError:
            raise UnavailableError(f"{url} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as exc:
            raise UnavailableError(f"{url} cannot be reached for a token: {self._hidden(str(exc))}") from None
        if response.status != 200:
            raise self._refusal(url, response, body)
        answer = _object(body)
        if answer is None:
            raise AuthError(f"{url} answered with something that is not a JSON object")
        return answer

    def _refusal(self, url: str, response: aiohttp.ClientResponse, body: bytes) -> AuthError | UnavailableError:
        status = response.status
        answer = _object(body) or {}
        words = [answer[name] for name in ("error", "error_description") if isinstance(answer.get(name), str)]
        if 300 <= status < 400:
            words = ["it redirects to " + response.headers.get("Location", "somewhere else")]
        text = f"{url} gives no token: HTTP {status}" + "".join(f": {self._hidden(word)}" for word in words)
        if status >= 500 or status in PASSING:
            return UnavailableError(text)
        return AuthError(text)

    def _hidden(self, text: str) -> str:
        text = text.replace(self._key.client_secret, "***")
        return "".join(letter if letter.isprintable() else " " for letter in text[:300])


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _seconds(life: object) -> float:
    """Parse ``expires_in``, which some issuers send as text; return 0 for anything but a number of seconds."""
    try:
        seconds = float(life) if isinstance(life, int | float | str) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return seconds if 0 < seconds < 1e9 else 0.0


def _sound(key: ClientKey) -> ClientKey:
    """Return ``key`` if its secret will be sent over TLS only. Raises AuthError."""
    try:
        check_issuer_url(key.issuer_url)
    except ValueError as exc:
        raise AuthError(f"the issuer_url of the key file {exc}") from None
    return key
