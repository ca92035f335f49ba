"""The schemas that Pulsar's brokers keep, for callers on other threads than that of an event loop."""

import asyncio
import json
import threading
from base64 import b64decode
from dataclasses import replace
from weakref import WeakSet

from fastwire.errors import FastwireError, ProtocolError
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.protocol.schema import Schema, split_key_value

from ...config import Connection
from ...net.schemaregistry import RegistryAwayError, RegistrySchema, UnknownSchemaError
from ...runtime.outside import Answers, answer_of, waits_for
from .cluster import ClientCluster
from .config import PulsarConnection
from .schemas import Schemas
from .settings import ClientSettings, client_fields

TIMEOUT_S = 10.0
# Its threads, such as that of a name lookup or of a plug-in for tokens, are waited for.
_QUESTION_S = TIMEOUT_S + 40.0


class TopicSchemas:
    """See ``net.schemaregistry.TopicSchemas``. Each schema is asked for over a connection of its own."""

    def __init__(self, connection: PulsarConnection) -> None:
        self.connection = connection
        self._settings = ClientSettings(**client_fields(connection))
        self._service = f"a schema of the brokers at {self._settings.url}"
        self._answers = Answers[tuple[str, bytes], RegistrySchema](self._service, _QUESTION_S)
        self.requests = 0
        """Requests so far."""

    def schema(self, topic: str, version: bytes) -> RegistrySchema:
        """Return a version of a topic's schema. Raises UnknownSchemaError, or RegistryAwayError."""
        key = str(parse_topic(topic).base), version
        return self._answers.get(key, lambda: _registered(self._fetch(*key)))

    def newest(self, topic: str) -> bytes:
        """Return the newest version of a topic, which is asked for each time. Raises as :meth:`schema`."""
        with waits_for(self._service, _QUESTION_S):
            return self._fetch(str(parse_topic(topic).base), b"").version

    def _fetch(self, topic: str, version: bytes) -> Schema:
        self.requests += 1
        try:
            found = answer_of(self._ask(topic, version))
        except TimeoutError:
            raise RegistryAwayError(f"{self._settings.url} has not answered within {TIMEOUT_S:.0f} s") from None
        except FastwireError as exc:
            raise RegistryAwayError(str(exc)) from None
        if found is None:
            raise UnknownSchemaError("the broker does not know it" if version else f"{topic} has no schema")
        return found

    async def _ask(self, topic: str, version: bytes) -> Schema | None:
        async with asyncio.timeout(TIMEOUT_S), ClientCluster(self._settings) as cluster:
            return await Schemas(cluster, self._settings.url).get(topic, version)


def _registered(schema: Schema) -> RegistrySchema:
    """Return the schema of a value, with that of its key if there is one. Raises UnknownSchemaError."""
    try:
        if schema.kind != "KEY_VALUE":
            return _read(schema.kind, schema.definition)
        kinds = [schema.properties.get(f"{part}.schema.type", "BYTES") for part in ("key", "value")]
        key, value = map(_read, kinds, split_key_value(schema.definition))
        return replace(value, paired=schema.properties.get("kv.encoding.type", "INLINE") != "SEPARATED", key=key)
    except (ProtocolError, ValueError, RecursionError) as exc:
        raise UnknownSchemaError(f"it cannot be read: {exc}") from None


def _read(kind: str, definition: bytes) -> RegistrySchema:
    """Return a schema without a key. Raises ValueError."""
    if kind == "PROTOBUF":  # of older clients: the definition is Avro, from which the fields' numbers cannot be told
        return RegistrySchema("PROTOBUF as Avro", "")
    if kind != "PROTOBUF_NATIVE":
        return RegistrySchema(kind, definition.decode(errors="replace"))
    found = json.loads(definition)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    text, message = found.get("fileDescriptorSet"), found.get("rootMessageTypeName")
    if not isinstance(text, str) or not isinstance(message, str) or not message:
        raise ValueError("it lacks fileDescriptorSet or rootMessageTypeName")
    b64decode(text, validate=True)
    return RegistrySchema("PROTOBUF", text, message=message)


_made: WeakSet[TopicSchemas] = WeakSet()  # a reload with another secret leaves none behind
_making = threading.Lock()


def schemas_of(connection: Connection) -> TopicSchemas:
    """Return the schemas of a cluster, one object for all equal connections. Raises ConfigError for its files."""
    own = PulsarConnection.of(connection)
    with _making:
        for made in _made:
            if all(getattr(made.connection, name) == getattr(own, name) for name in ("url", "auth", "tls", "listener")):
                return made
        schemas = TopicSchemas(own)
        _made.add(schemas)
        return schemas
