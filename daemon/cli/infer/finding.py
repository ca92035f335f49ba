"""Findings of ``infer``: a schema of values by their kind, the keys of ``[decode]``, and the lines about fields."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastwire.decode.json.inference import Fact, Inference
from fastwire.errors import FastwireError

from ...net.schemaregistry import RegistrySchema, TopicSchemas, UnknownSchemaError
from ...runtime.amounts import counted
from .framing import WRAPPER, Kind, Sorted

Say = Callable[[str], None]
_SHOWN_IDS = 5
_BY_BROKERS = frozenset(("AVRO", "JSON", "PROTOBUF"))


class NothingInferred(FastwireError):  # noqa: N818 - the values are as they are
    """The values have no schema that could be inferred; the text says why, and what to do."""


class Schema(NamedTuple):
    """A schema, and how values are decoded by it."""

    content: bytes
    """Content of its file."""
    text: str
    """The same as text for people; "" if it is binary."""
    file: str
    """A name for the file."""
    keys: dict[str, Any]
    """Keys of ``[decode]`` besides ``schema``."""

    @property
    def registered(self) -> bool:
        """True if values are decoded without its file, by the schemas of a registry or of brokers."""
        return "registry" in self.keys

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields, as far as the text has them."""
        made = json.loads(self.text) if self.text else {}
        return frozenset(each["name"] for each in made["fields"]) if "fields" in made else frozenset()


def findings(values: Sorted, topic: str, maps: frozenset[str], *, times: bool, registry: str, say: Say) -> Schema:
    """Return the schema of most of the values, and print what is odd about them by ``say``.

    Raises SchemaError for JSON with too many columns, NothingInferred where there is no schema, and FastwireError if
    the ``registry`` does not answer.
    """
    name, kind = _name(topic), values.kind
    if kind == Kind.FRAMED:
        return _registered(values, name, registry, say)
    if kind == Kind.OBJECT:
        return _of_objects(values, name, maps, times=times, say=say)
    if kind is None:
        raise NothingInferred("there are no records with a value: produce some, or take more with --records")
    raise NothingInferred(f"most values are {kind}, which have no fields: they land without [decode], as they are")


def kept(schemas: TopicSchemas, system: str, topics: Sequence[str], say: Say) -> Schema | None:
    """Return the newest schema that brokers of ``system`` keep of ``topics``; None if none of them decodes values.

    Raises NothingInferred if the topics have several formats, and FastwireError if the brokers do not answer.
    """
    found: dict[str, RegistrySchema] = {}
    for topic in topics:
        with suppress(UnknownSchemaError):
            found[topic] = schemas.schema(topic, schemas.newest(topic))
    if not any(each.kind in _BY_BROKERS for each in found.values()):
        return None
    for topic in topics:
        kind = found[topic].kind if topic in found else "none"
        say(f"  the brokers keep the schema of {topic}: {kind}")
    if len({each.kind for each in found.values()}) > 1:
        raise NothingInferred("a pipeline decodes values of one format: the topics have several")
    topic, schema = next(iter(found.items()))
    keys = {"format": schema.kind.lower(), "registry": system}
    if schema.kind == "PROTOBUF":
        keys["message"] = schema.message
        return Schema(b64decode(schema.text), "", f"{_name(topic)}.desc", keys)
    return Schema(schema.text.encode() + b"\n", schema.text, f"{_name(topic)}.avsc", keys)


def _name(topic: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", topic.rpartition("/")[2]).strip("_") or "records"


def _of_objects(values: Sorted, name: str, maps: frozenset[str], *, times: bool, say: Say) -> Schema:
    without: frozenset[str] = frozenset()
    if (events := values.change_events) * 2 > len(values.objects):
        say(f"  {counted(events, 'change event')} of Debezium among them: the sink postgresql can carry them out")
        if all("payload" in each and each.keys() <= WRAPPER for each in values.objects):
            say("  each has its schema beside its payload: that part is left out")
            without = frozenset({"schema"})
    inference = Inference(maps=maps, times=times, without=without)
    for each in values.objects:
        inference.add(each)
    text = inference.schema(name)
    facts = list(inference.facts())
    say("")
    for line in _lines(facts):
        say(line)
    if strange := sorted(maps - {each.path for each in facts if each.type == "map"}):
        say(f"no object is at {', '.join(strange)}, which --map names")
    odd = [f"{each.path} {sentence}" for each in facts for sentence in each.odd]
    if rest := values.total - len(values.objects) - values.counts[Kind.NULL]:
        odd.append(f"{counted(rest, 'value is no JSON object', 'values are no JSON objects')}: a dead letter for each")
    if nulls := values.counts[Kind.NULL]:
        null = counted(nulls, "value is null", "values are null")
        odd.append(f'{null}: a dead letter for each, or a row where columns has "_deleted"')
    if odd:
        say("")
        say("odd")
        for sentence in odd:
            say(f"  {sentence}")
    return Schema(text.encode(), text, f"{name}.avsc", {"format": "json"})


def _lines(facts: Sequence[Fact]) -> list[str]:
    rows = [("FIELD", "TYPE", "NULL", "EXAMPLE")]
    rows += [(each.path, each.type or "-", f"{each.null_share:.1%}", each.example) for each in facts]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return ["  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3])).rstrip()
            for row in rows]  # fmt: skip


def _registered(values: Sorted, name: str, url: str, say: Say) -> Schema:
    from ...config.decode import RegistryConfig
    from ...net.schemaregistry import registry_of

    ids = ", ".join(str(id) for id, _ in values.ids.most_common(_SHOWN_IDS))
    if not url:
        raise NothingInferred(f"the values begin with ids of schemas ({ids}): name their registry by --registry URL")
    found = registry_of(RegistryConfig(url=url))
    schemas = {id: found.schema(id) for id in values.ids}
    kinds = sorted({each.kind for each in schemas.values()})
    say(f"  their schemas are {ids}, of {' and '.join(kinds)}")
    if len(kinds) > 1:
        raise NothingInferred("a pipeline decodes values of one format: the topic has several")
    newest = schemas[max(schemas)]
    keys = {"format": kinds[0].lower(), "registry": {"url": url}}
    if newest.references and kinds[0] != "PROTOBUF":
        raise NothingInferred("the newest schema refers to others: write one file that has them all")
    if kinds[0] == "AVRO":
        return Schema(newest.text.encode() + b"\n", newest.text, f"{name}.avsc", keys)
    if kinds[0] == "PROTOBUF":
        from fastwire.decode.protobuf.descriptors import registered_set

        content, messages = registered_set(newest.text, dict(zip(newest.names, newest.references, strict=True)))
        if len(messages) > 1:
            say(f"  the schema has the messages {', '.join(messages)}; the table takes the first one")
        return Schema(content, "", f"{name}.desc", {**keys, "message": messages[0]})
    raise NothingInferred("JSON behind the id of a schema is not decoded: it lands without [decode], as it is")
