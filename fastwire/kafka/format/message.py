"""Encoding and decoding of requests and responses by their tables, in every version (spec: kafka 2, 3, 5).

A struct is a dict from field name to value: numbers are int, ``bool`` is bool, ``string`` is str, ``bytes``,
``records`` and ``uuid`` (16 bytes) are bytes, arrays are lists; null is None. A missing field is sent as its default.
The hot path, records in Fetch responses, is ``fastwire.kafka.reading.scan``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.wire.writer import encode_varint

from .layouts import LAYOUTS

Body = dict[str, Any]

_NUMBERS = {
    "bool": Struct(">?"),
    "i8": Struct(">b"),
    "i16": Struct(">h"),
    "i32": Struct(">i"),
    "i64": Struct(">q"),
}
_SIZES = {"uuid": 16}
_ALWAYS = 1 << 15
# Limit of the values in all lists of one response, as a divisor of the memory budget in bytes. A value takes some 60
# bytes as a Python object, so lists take about a quarter of the budget. A partition of Metadata with three replicas has
# about 13 values.
_VALUES_SHARE = 256
_LEAST_VALUES = 1 << 18
_MOST_OF_TABLE = 1 << 20  # values of a struct inside a bytes field, such as an assignment


@dataclass(slots=True)
class _Field:
    name: str
    kind: str  # a primitive's name, "array" or "struct"
    element: str = ""  # of an array of primitives
    fields: "list[_Field]" = field(default_factory=list)  # of a struct, or of an array's structs
    first: int = 0
    last: int = _ALWAYS
    null_first: int = _ALWAYS
    null_last: int = -1
    tag: int = -1
    default: Any = None

    def in_version(self, version: int) -> bool:
        return self.first <= version <= self.last

    def nullable(self, version: int) -> bool:
        return self.null_first <= version <= self.null_last

    def absent(self, version: int) -> Any:
        """Return the default of an absent field."""
        if self.default is not None:
            return self.default
        if self.nullable(version):
            return None
        if self.kind == "array":
            return []
        if self.kind == "struct":
            return {one.name: one.absent(version) for one in self.fields if one.in_version(version)}
        return {"string": "", "bytes": b"", "records": b"", "uuid": bytes(16), "bool": False}.get(self.kind, 0)


@dataclass(slots=True)
class Api:
    """One type of request with its response, in the versions ``lowest`` to ``highest``."""

    name: str
    key: int
    lowest: int
    highest: int
    flexible: int
    request: list[_Field] = field(default_factory=list)
    response: list[_Field] = field(default_factory=list)

    def check(self, version: int) -> None:
        """Raise ValueError for a version that the tables lack."""
        if not self.lowest <= version <= self.highest:
            raise ValueError(f"{self.name} version {version} is not within {self.lowest} and {self.highest}")

    def tagged_response_header(self, version: int) -> bool:
        """Return whether tagged fields follow the correlation id; never in ApiVersions, whose version is unknown at
        first.
        """
        return version >= self.flexible and self.key != 18


# --- the tables


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    return (int(first), int(last)) if dash else (int(text.rstrip("+")), _ALWAYS)


def _parse_field(line: str) -> _Field:
    name, kind, *options = line.split()
    parsed = _Field(name, kind)
    if kind == "[":
        parsed.kind = "array"
    elif kind == "{":
        parsed.kind = "struct"
    elif kind.startswith("["):
        parsed.kind, parsed.element = "array", kind[1:-1]
    for option in options:
        if option.startswith("v"):
            parsed.first, parsed.last = _range(option[1:])
        elif option.startswith("null="):
            parsed.null_first, parsed.null_last = _range(option[5:])
        elif option.startswith("tag="):
            parsed.tag = int(option[4:])
        else:
            parsed.default = int(option[1:]) if parsed.kind != "bool" else option == "=1"
    return parsed


def _parse_fields(lines: Iterator[str]) -> list[_Field]:
    found = []
    for line in lines:
        if line in ("]", "}"):
            break
        parsed = _parse_field(line)
        if line.split()[1] in ("[", "{"):
            parsed.fields = _parse_fields(lines)
        found.append(parsed)
    return found


def _parse_api(block: str) -> Api:
    head, *lines = [line.strip() for line in block.strip().splitlines()]
    name, *options = head.split()
    said = dict(option.split("=") for option in options)
    lowest, highest = _range(said["v"])
    middle = lines.index("response")
    return Api(
        name,
        int(said["key"]),
        lowest,
        highest,
        int(said.get("flex", _ALWAYS)),
        _parse_fields(iter(lines[1:middle])),
        _parse_fields(iter(lines[middle + 1 :])),
    )


APIS: dict[int, Api] = {api.key: api for api in map(_parse_api, LAYOUTS.strip().split("\n\n"))}
"""By key."""


# --- writing


@dataclass(slots=True)
class _Plan:
    """The fields of a struct in one version, with their defaults."""

    names: frozenset[str]  # of all versions
    plain: list[tuple[_Field, str, Any, Callable[[Any], bytes] | None]]  # with the packer of a number
    tagged: list[tuple[_Field, str, Any]]  # in the order of their tags


_PLANS: dict[tuple[int, int], _Plan] = {}  # by version and the identity of a table's list, which is never released


def _plan(fields: list[_Field], version: int) -> _Plan:
    known = _PLANS.get((id(fields), version))
    if known is None:
        there = [one for one in fields if one.in_version(version)]
        known = _PLANS[id(fields), version] = _Plan(
            frozenset(one.name for one in fields),
            [
                (one, one.name, one.absent(version), _NUMBERS[one.kind].pack if one.kind in _NUMBERS else None)
                for one in there
                if one.tag < 0
            ],
            sorted(((one, one.name, one.absent(version)) for one in there if one.tag >= 0), key=lambda it: it[0].tag),
        )
    return known


class _Writer:
    def __init__(self, version: int, flexible: bool) -> None:
        self.out: list[bytes] = []
        self._version = version
        self._flexible = flexible

    def struct(self, fields: list[_Field], body: Body) -> None:
        plan = _plan(fields, self._version)
        if not body.keys() <= plan.names:
            raise ValueError(f"no field {', '.join(sorted(body.keys() - plan.names))}")
        for one, name, absent, pack in plan.plain:
            value = body.get(name, absent)
            if pack is None or value is None:
                self.value(one, value)
            else:
                self.out.append(pack(value))
        if self._flexible:
            self.tags(plan, body)

    def tags(self, plan: _Plan, body: Body) -> None:
        said = [(one, body[name]) for one, name, absent in plan.tagged if body.get(name, absent) != absent]
        self.out.append(encode_varint(len(said)))
        for one, value in said:
            inner = _Writer(self._version, self._flexible)
            inner.value(one, value)
            content = b"".join(inner.out)
            self.out += (encode_varint(one.tag), encode_varint(len(content)), content)

    def length(self, size: int, wide: bool) -> None:
        """Write the length of a string (wide is false), bytes or an array; -1 is null."""
        if self._flexible:
            self.out.append(encode_varint(size + 1))
        else:
            self.out.append(_NUMBERS["i32" if wide else "i16"].pack(size))

    def value(self, one: _Field, value: Any) -> None:
        if value is None:
            if not one.nullable(self._version):
                raise ValueError(f"{one.name} cannot be null in version {self._version}")
            if one.kind == "struct":
                self.out.append(b"\xff")
            else:
                self.length(-1, one.kind != "string")
        elif one.kind == "array":
            self.length(len(value), True)
            for item in value:
                if one.element:
                    self.primitive(one.element, item)
                else:
                    self.struct(one.fields, item)
        elif one.kind == "struct":
            if one.null_last >= 0:
                self.out.append(b"\x01")
            self.struct(one.fields, value)
        else:
            self.primitive(one.kind, value)

    def primitive(self, kind: str, value: Any) -> None:
        if kind in _NUMBERS:
            self.out.append(_NUMBERS[kind].pack(value))
        elif kind == "uuid":
            if len(value) != 16:
                raise ValueError("a uuid has 16 bytes")
            self.out.append(value)
        else:
            content = value.encode() if kind == "string" else bytes(value)
            self.length(len(content), kind != "string")
            self.out.append(content)


def _encode(fields: list[_Field], version: int, flexible: bool, body: Body) -> bytes:
    writer = _Writer(version, flexible)
    writer.struct(fields, body)
    return b"".join(writer.out)


def _frame(*parts: bytes) -> bytes:
    content = b"".join(parts)
    return len(content).to_bytes(4) + content


def encode_request(key: int, version: int, correlation_id: int, client_id: str, body: Body) -> bytes:
    """Return a complete request frame. Raises ValueError for a version, field or null that the tables lack."""
    api = APIS[key]
    api.check(version)
    flexible = version >= api.flexible
    name = client_id.encode()
    header = Struct(">hhih").pack(key, version, correlation_id, len(name)) + name
    return _frame(header, b"\0" if flexible else b"", _encode(api.request, version, flexible, body))


def encode_response(key: int, version: int, correlation_id: int, body: Body) -> bytes:
    """Return a complete response frame, for test brokers."""
    api = APIS[key]
    api.check(version)
    header = _NUMBERS["i32"].pack(correlation_id) + (b"\0" if api.tagged_response_header(version) else b"")
    return _frame(header, _encode(api.response, version, version >= api.flexible, body))


# --- reading


class _Reader:
    def __init__(self, data: bytes, at: int, version: int, flexible: bool, most_values: int = 1 << 62) -> None:
        self.data = data
        self.at = at
        self._version = version
        self._flexible = flexible
        self._most_values = most_values
        self._values_left = most_values  # left for further lists

    def take(self, size: int, name: str) -> bytes:
        present = len(self.data) - self.at
        if size > present:
            raise ProtocolError(name, self.at, size, present)
        self.at += size
        return self.data[self.at - size : self.at]

    def uvarint(self, name: str) -> int:
        value = 0
        start = self.at
        for shift in range(0, 35, 7):
            byte = self.take(1, name)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ProtocolError(name, start, detail="a number of more than 5 bytes")

    def number(self, kind: str, name: str) -> Any:
        form = _NUMBERS[kind]
        return form.unpack(self.take(form.size, name))[0]

    def length(self, name: str, wide: bool) -> int:
        at = self.at
        size = int(self.uvarint(name) - 1 if self._flexible else self.number("i32" if wide else "i16", name))
        if size < -1:
            raise ProtocolError(name, at, detail=f"a length of {size}")
        return size

    def struct(self, fields: list[_Field]) -> Body:
        version = self._version
        body = {}
        tagged = {}
        for one in fields:
            if one.in_version(version):
                if one.tag < 0:
                    body[one.name] = self.value(one)
                else:
                    body[one.name] = one.absent(version)
                    tagged[one.tag] = one
        if self._flexible:
            self.tags(tagged, body)
        return body

    def tags(self, known: dict[int, _Field], body: Body) -> None:
        last = -1
        for _ in range(self.uvarint("tagged fields")):
            at = self.at
            tag = self.uvarint("tag")
            if tag <= last:
                raise ProtocolError("tag", at, detail=f"{tag} follows {last}")
            last = tag
            size = self.uvarint("size of a tagged field")
            end = self.at + size
            if end > len(self.data):
                raise ProtocolError("tagged field", self.at, size, len(self.data) - self.at)
            if tag in known:
                inner = _Reader(self.data[:end], self.at, self._version, True, self._most_values)
                inner._values_left = self._values_left
                body[known[tag].name] = inner.value(known[tag])
                self._values_left = inner._values_left
            self.at = end

    def value(self, one: _Field) -> Any:
        if one.kind == "struct":
            if one.null_last >= 0 and self.number("i8", one.name) < 0:
                return None
            return self.struct(one.fields)
        if one.kind == "array":
            at = self.at
            count = self.length(one.name, True)
            if count < 0:
                return self.null(one, at)
            if count > len(self.data) - self.at:  # an element has at least a byte
                raise ProtocolError(one.name, at, count, len(self.data) - self.at)
            self._values_left -= count * max(1, len(one.fields))
            if self._values_left < 0:
                raise ProtocolError(
                    one.name,
                    at,
                    detail=f"a list of {count}: all lists of an answer hold {self._most_values} values at most, "
                    "as many as the memory budget (daemon.memory) has room for",
                )
            if one.element:
                return [self.primitive(one, one.element) for _ in range(count)]
            return [self.struct(one.fields) for _ in range(count)]
        return self.primitive(one, one.kind)

    def null(self, one: _Field, at: int) -> None:
        if not one.nullable(self._version):
            raise ProtocolError(one.name, at, detail="is null")

    def primitive(self, one: _Field, kind: str) -> Any:
        if kind in _NUMBERS:
            return self.number(kind, one.name)
        if kind in _SIZES:
            return self.take(_SIZES[kind], one.name)
        at = self.at
        size = self.length(one.name, kind != "string")
        if size < 0:
            return self.null(one, at)
        content = self.take(size, one.name)
        if kind != "string":
            return content
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ProtocolError(one.name, at, detail="is not UTF-8") from None


def decode_response(key: int, version: int, frame: bytes, memory: int = 1 << 30) -> Body:
    """Return the body of a response; ``frame`` begins with the correlation id. Raises ProtocolError.

    Lists that would take more than about a quarter of ``memory`` (bytes) as objects are refused before they are read.
    Surplus bytes are allowed, because real peers send them (spec: kafka 18).
    """
    api = APIS[key]
    api.check(version)
    reader = _Reader(frame, 4, version, version >= api.flexible, max(memory // _VALUES_SHARE, _LEAST_VALUES))
    if api.tagged_response_header(version):
        reader.tags({}, {})
    return reader.struct(api.response)


def decode_request(frame: bytes) -> tuple[Api, int, int, str | None, Body]:
    """Return Api, version, correlation id, client id and body of a request; ``frame`` begins with the api key.

    Raises ProtocolError, also for an unknown key or version, for which a broker closes the connection.
    """
    plain = _Reader(frame, 0, 0, False)
    key, version = plain.number("i16", "api key"), plain.number("i16", "api version")
    correlation_id = plain.number("i32", "correlation id")
    api = APIS.get(key)
    if api is None or not api.lowest <= version <= api.highest:
        raise ProtocolError("api key", 0, detail=f"there is no request {key} of version {version}")
    client_id = plain.value(_Field("client id", "string", null_first=0, null_last=_ALWAYS))
    reader = _Reader(frame, plain.at, version, version >= api.flexible)
    if version >= api.flexible:
        reader.tags({}, {})
    return api, version, correlation_id, client_id, reader.struct(api.request)


class Table:
    """A struct inside a bytes field, in the plain encoding; ``text`` has the syntax of the message tables."""

    def __init__(self, text: str) -> None:
        self._fields = _parse_fields(line.strip() for line in text.strip().splitlines())

    def encode(self, body: Body, version: int = 0) -> bytes:
        """Encode ``body``. Raises ValueError for a field or null that the table lacks."""
        return _encode(self._fields, version, False, body)

    def decode(self, data: bytes, version: int = 0, at: int = 0) -> Body:
        """Decode from byte ``at`` on. Missing fields at the end are absent; surplus bytes are allowed.

        Raises ProtocolError.
        """
        reader = _Reader(data, at, version, False, _MOST_OF_TABLE)
        return {
            one.name: reader.value(one) if reader.at < len(data) else one.absent(version)
            for one in self._fields
            if one.in_version(version)
        }


def read_api_versions_error(frame: bytes) -> int:
    """Return the error code of an ApiVersions response of any version, such as that to an unsupported version.

    The rest of the body is unreliable then (spec: kafka 4.1).
    """
    return int(_Reader(frame, 4, 0, False).number("i16", "error_code"))
