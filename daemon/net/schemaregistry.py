"""Client of a schema registry with the Confluent API: the newest id of a subject, and the schema of an id.

A schema never changes under its id, so the cache has no end; it is shared by all pipelines of the process that name the
same registry with the same credentials. Requests block: they are made on the thread of a sink, and have deadlines.
"""

import http.client
import json
import os
import ssl
import threading
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol
from urllib.parse import quote, urlsplit
from weakref import WeakSet

from fastwire.errors import FastwireError

from ..config.decode import RegistryConfig
from ..runtime.outside import Answers, answer_of, waits_for
from .auth import AuthError, BasicCredentials, UnavailableError, credentials
from .tls import ClientTls

TIMEOUT_S = 10.0  # of one answer
SCHEMA_S = 60.0  # of a schema with all that it refers to
# A login may ask an issuer or a plug-in for a token, which have deadlines of their own.
_QUESTION_S = SCHEMA_S + TIMEOUT_S + 40.0
LARGEST_ANSWER = 16 << 20
MOST_REFERENCES = 256
NO_REGISTRY = ": what answers is not a schema registry: check registry.url, and for a proxy or a login page before it"
# Web servers before a registry say these in HTML.
_REFUSED = (http.client.UNAUTHORIZED, http.client.FORBIDDEN, http.client.TOO_MANY_REQUESTS)
_JSON = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryAwayError(FastwireError):
    """The registry gives no schema now; a retry may help. The text has no secret."""


class UnknownSchemaError(FastwireError):
    """The registry has no schema of this id, or none of this subject."""


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """A schema as it was registered."""

    kind: str
    """AVRO, PROTOBUF or JSON; of brokers also the name of another type."""
    text: str
    """The schema; of PROTOBUF its file descriptor, serialized and in base64."""
    references: tuple[str, ...] = ()
    """Schemas that it refers to, each after those that it refers to itself, in the same form."""
    names: tuple[str, ...] = ()
    """The names by which they are referred to: imports of PROTOBUF."""
    message: str = ""
    """The message type of all values of PROTOBUF, if the schema has one; then its text is that of a descriptor set."""
    paired: bool = False
    """True if each value is a pair of a key and a value, and the schema is that of the latter."""
    key: "RegistrySchema | None" = None
    """The schema of the keys, if the same version has one."""


class TopicSchemas(Protocol):
    """The schemas that the brokers of a cluster keep, each asked for once. For any thread that may block."""

    def schema(self, topic: str, version: bytes) -> RegistrySchema:
        """Return a version of a topic's schema.

        Raises UnknownSchemaError, or RegistryAwayError, after which a retry may help.
        """

    def newest(self, topic: str) -> bytes:
        """Return the newest version of a topic. Raises as :meth:`schema`."""


class SchemaRegistry:
    """The schemas of one registry by id, for any thread."""

    def __init__(self, config: RegistryConfig) -> None:
        self.config = config
        self._tls = ClientTls(config.tls) if urlsplit(config.url).scheme == "https" else None
        self._credentials = credentials(config.auth)
        self._service = f"the schema registry at {config.url}"
        self._answers = Answers[int, RegistrySchema](self._service, _QUESTION_S)
        self.requests = 0
        """Requests so far."""

    def schema(self, id: int) -> RegistrySchema:
        """Return the schema ``id``. Raises UnknownSchemaError, or RegistryAwayError, after which a retry may help."""
        return self._answers.get(id, lambda: self._fetch(id))

    def newest(self, subject: str) -> int:
        """Return the id of the newest version of a subject, which is asked for each time. Raises as :meth:`schema`."""
        with waits_for(self._service, _QUESTION_S):
            answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/latest", monotonic() + SCHEMA_S)
        if not isinstance(answer.get("id"), int):
            raise RegistryAwayError(f"{self.config.url} answers without the id of the newest version of {subject}")
        return int(answer["id"])

    def _fetch(self, id: int) -> RegistrySchema:
        until = monotonic() + SCHEMA_S
        answer, form = self._ask(f"/schemas/ids/{id}", until), ""
        if answer.get("schemaType") == "PROTOBUF":
            form = "?format=serialized"
            answer = {**answer, **self._ask(f"/schemas/ids/{id}{form}", until)}
        return self._read(answer, self._references(answer, form, until))

    def _references(self, answer: dict[str, Any], form: str, until: float) -> Mapping[str, str]:
        """Return the schemas that a schema refers to, by subject and version, in an order that defines names first.

        They are asked for in this form. Keys are the names by which they are referred to.
        """
        found: set[tuple[object, object]] = set()
        texts: dict[str, str] = {}

        def follow(holder: dict[str, Any]) -> None:
            for each in _list(holder.get("references")):
                key = (each.get("subject"), each.get("version"))
                if not isinstance(key[0], str) or not isinstance(key[1], int):
                    raise RegistryAwayError(f"{self.config.url} answers with a reference without subject and version")
                if key in found:
                    continue
                if len(found) == MOST_REFERENCES:
                    raise RegistryAwayError(f"a schema has more than {MOST_REFERENCES} references")
                found.add(key)
                held = self._ask(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}{form}", until)
                follow(held)
                texts[str(each.get("name", len(texts)))] = self._read(held, {}).text

        follow(answer)
        return texts

    def _read(self, answer: dict[str, Any], references: Mapping[str, str]) -> RegistrySchema:
        text, kind = answer.get("schema"), answer.get("schemaType", "AVRO")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise RegistryAwayError(f"{self.config.url} answers without a schema")
        return RegistrySchema(kind, text, tuple(references.values()), tuple(references))

    def _ask(self, path: str, until: float) -> dict[str, Any]:
        """Return an answer that is needed by ``until``, on the monotonic clock."""
        self.requests += 1
        where = f"{self.config.url.rstrip('/')}{path}"
        if monotonic() >= until:
            raise RegistryAwayError(f"{where}: the schema has not come, with its references, within {SCHEMA_S:.0f} s")
        try:
            status, body = answer_of(self._get(where))
            answer = json.loads(body)
        except (AuthError, UnavailableError) as exc:
            raise RegistryAwayError(f"no credentials for {self.config.url}: {exc}") from None
        except OSError as exc:
            raise RegistryAwayError(f"{where}: {_reason(exc)}") from None
        except (ValueError, RecursionError):
            status, answer = status, None
        if status == http.client.NOT_FOUND and isinstance(answer, dict) and "error_code" in answer:
            raise UnknownSchemaError(f"{where}: {answer.get('message', 'not found')!s:.200}")
        if status != http.client.OK or not isinstance(answer, dict):
            what = "without JSON" if status == http.client.OK else f"{status} {http.client.responses.get(status, '')}"
            known = isinstance(answer, dict) or status in _REFUSED or status >= http.client.INTERNAL_SERVER_ERROR
            raise RegistryAwayError(f"{where} answers {what.strip()}{'' if known else NO_REGISTRY}")
        return answer

    async def _get(self, url: str) -> tuple[int, bytes]:
        from .httpget import get  # it loads an HTTP client, which most processes do not need

        return await get(
            url,
            {"Accept": _JSON, **await self._login()},
            tls=None if self._tls is None else self._tls.context(),
            server_name=self.config.tls.server_name or None,
            most_s=TIMEOUT_S,
            most_bytes=LARGEST_ANSWER,
        )

    async def _login(self) -> dict[str, str]:
        held = self._credentials
        if isinstance(held, BasicCredentials):
            return {"Authorization": "Basic " + b64encode(f"{held.user}:{held.password()}".encode()).decode()}
        token = await held.data()
        return {} if token is None else {"Authorization": f"Bearer {token.decode()}"}


def _list(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _reason(exc: OSError) -> str:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {exc.verify_message}"
    if isinstance(exc, ConnectionError) and exc.errno:
        return os.strerror(exc.errno)
    return exc.strerror or str(exc) or type(exc).__name__


_registries: WeakSet[SchemaRegistry] = WeakSet()  # a reload with another secret leaves none behind
_making = threading.Lock()


def registry_of(config: RegistryConfig) -> SchemaRegistry:
    """Return the registry of ``config``, one for all equal configurations. Raises ConfigError for its TLS files."""
    with _making:
        for registry in _registries:
            if registry.config == config:
                return registry
        made = SchemaRegistry(config)
        _registries.add(made)
        return made
