"""Types of single configuration values: their validation, parsed form, JSON Schema and error messages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, PlainSerializer, PlainValidator, SecretStr, ValidationInfo, WithJsonSchema

from fastwire.grammar import BrokerUrl, Grammar, TopicPattern
from fastwire.position import Position
from fastwire.systems import SYSTEMS, grammar_of, grammars, pattern_examples, row_of

from .address import HttpAddress, parse_http_address, parse_url
from .text import format_duration, format_size, kind, nearest, parse_duration, parse_size

TOPIC = "{topic}"
"""Stands for the name of a topic's dataset: in ``path`` and ``table`` of a sink, in ``decode.schema``."""

_INT32 = (1 << 31) - 1
_INT64 = (1 << 63) - 1
_MOST_BYTES = 16 << 40  # a larger file is more than ext4 can hold
_MOST_ROWS = 10**12


def start_choices(grammar: Grammar | None) -> str:
    """Return a description of the values of the key ``start`` for a system (None: unknown), for messages."""
    example = "a table of positions by partition" if grammar is None else grammar.start_example
    return (
        '"earliest" (everything the topic holds), "latest" (only what is produced from the first start on), '
        'an RFC 3339 time such as "2025-01-31T00:00:00Z" or a time ago such as "-24h" (what was published since), '
        f"or {example} (what follows that position)"
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind(value)}")
    if not value.strip():
        raise ValueError("is empty")
    return value


def _whole(value: object, lowest: int, highest: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        value = int(value)  # ${ENV} substitutes text only
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {kind(value)}")
    if value < lowest:
        raise ValueError(f"must be at least {lowest}, not {value}")
    if value > highest:
        raise ValueError(f"must be at most {highest}, not {value}")
    return value


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"must be true or false, not {kind(value)}")


def _some(parse: Callable[[object], Any]) -> Callable[[object], Any]:
    def parsed(value: object) -> Any:
        number = parse(value)
        if number <= 0:
            raise ValueError("must be greater than zero")
        return number

    return parsed


def _size(value: object) -> int:
    size = parse_size(value)
    if size > _MOST_BYTES:
        raise ValueError(f"is too large: at most {format_size(_MOST_BYTES)}")
    return size


def _below_2_gib(size: int) -> int:
    """Return ``size``. Raises ValueError if it does not fit the signed 32 bits of a protocol."""
    if size > _INT32:
        raise ValueError(f"is too large: at most {_INT32} bytes, which is all that the protocol can say")
    return size


def _in_milliseconds(seconds: float) -> float:
    """Return ``seconds``. Raises ValueError if they do not fit the signed 32 bits of milliseconds of a protocol."""
    if seconds * 1000 > _INT32:
        raise ValueError("is too long: at most 24d, which is all that the protocol can say")
    return seconds


def _secret(value: object) -> SecretStr:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind(value)}")
    text = value.strip().removeprefix("token:")
    if not text:
        raise ValueError("is empty")
    if not text.isascii() or not text.isprintable():
        raise ValueError("contains characters that are not allowed in a token")
    return SecretStr(text)


def _password(value: object) -> SecretStr:
    text = _text(value)
    if not text.isprintable():
        raise ValueError("contains characters that are not allowed in a password")
    return SecretStr(text)


def _user(value: object) -> str:
    text = _text(value)
    if ":" in text or not text.isprintable():
        # User and password are sent as user:password.
        raise ValueError("contains a character that is not allowed in a user name")
    return text


def is_exposed(text: str) -> bool:
    """Return True if a secret that is sent to this URL crosses the network unencrypted."""
    url = urlsplit(text)
    return url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1")


def _check_web_url(text: str, example: str) -> str:
    """Return ``text``. Raises ValueError if it is not a URL of HTTP without a user, a query and a fragment."""
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        host, url = None, urlsplit("")
    if not host or url.scheme not in ("https", "http") or url.username is not None or url.query or url.fragment:
        raise ValueError(f'must be a URL such as "{example}"')
    return text


def check_issuer_url(text: str) -> str:
    """Return ``text`` if a secret may be sent there. Raises ValueError if it is not a URL, or not encrypted."""
    _check_web_url(text, "https://login.example.com")
    if is_exposed(text):
        raise ValueError("must be https://: the secret would cross the network unencrypted")
    return text


_COLUMNS = list(dict.fromkeys(column for system in SYSTEMS for column in row_of(system).names))


def _column(value: object) -> str:
    known = _COLUMNS
    if value not in known:
        shown = f'"{value}"' if isinstance(value, str) else kind(value)
        hint = nearest(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{shown} is not a column{hint or ': known are ' + ', '.join(known)}")
    return str(value)


def read_path(value: object) -> Path:
    """Read a path of a file or folder. Raises ValueError."""
    text = _text(value)
    if "://" in text:
        raise ValueError("must be a path of this machine, not a URL")
    if "\0" in text:
        raise ValueError("contains a zero byte")
    return Path(text)


def _topic(value: object, info: ValidationInfo) -> str:
    text, grammar = _text(value), grammar_in(info)
    return text if grammar is None else grammar.topic(text)


def _pattern(value: object, info: ValidationInfo) -> TopicPattern:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind(value)}")
    return (grammar_in(info) or grammars()[0]).pattern(value)


def grammar_in(info: ValidationInfo) -> Grammar | None:
    """Return the grammar of the system of the table's URL; None if the URL has no known scheme."""
    if info.context is not None:
        found: Grammar | None = info.context["grammar"]
        return found
    return grammar_of(info.data.get("url", ""))  # the model validates url before the other keys


def _schema(kind_of_value: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": kind_of_value, "examples": [example]})


def _examples(*texts: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": list(texts)})


def _whole_schema(lowest: int, highest: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "integer", "minimum": lowest, "maximum": highest})


_size_schema = WithJsonSchema({"type": ["string", "integer"], "examples": ["128MiB"]})
_size_text = PlainSerializer(format_size, when_used="json")
_time_schema = _schema("string", "30s")
_time_text = PlainSerializer(format_duration, when_used="json")
_as_text = PlainSerializer(str, when_used="json")

Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
Natural = Annotated[int, PlainValidator(lambda value: _whole(value, 0, _INT64)), _whole_schema(0, _INT64)]
WireNatural = Annotated[int, PlainValidator(lambda value: _whole(value, 0, _INT32)), _whole_schema(0, _INT32)]
Count = Annotated[int, PlainValidator(lambda value: _whole(value, 1, _INT32)), _whole_schema(1, _INT32)]
Rows = Annotated[int, PlainValidator(lambda value: _whole(value, 1, _MOST_ROWS)), _whole_schema(1, _MOST_ROWS)]
Switch = Annotated[bool, PlainValidator(_switch), WithJsonSchema({"type": "boolean"})]
Size = Annotated[int, PlainValidator(_size), _size_text, _size_schema]
SomeSize = Annotated[int, PlainValidator(_some(_size)), _size_text, _size_schema]
Duration = Annotated[float, PlainValidator(parse_duration), _time_text, _time_schema]
SomeTime = Annotated[float, PlainValidator(_some(parse_duration)), _time_text, _time_schema]
WireSize = Annotated[SomeSize, AfterValidator(_below_2_gib)]
WireTime = Annotated[SomeTime, AfterValidator(_in_milliseconds)]
Secret = Annotated[SecretStr, PlainValidator(_secret), _as_text, WithJsonSchema({"type": "string", "writeOnly": True})]
Password = Annotated[
    SecretStr, PlainValidator(_password), _as_text, WithJsonSchema({"type": "string", "writeOnly": True})
]
UserName = Annotated[str, PlainValidator(_user), WithJsonSchema({"type": "string", "minLength": 1})]
IssuerUrl = Annotated[
    str, PlainValidator(lambda value: check_issuer_url(_text(value))), _schema("string", "https://login.example.com")
]
RegistryUrl = Annotated[
    str,
    PlainValidator(lambda value: _check_web_url(_text(value), "https://registry.example.com")),
    _schema("string", "https://registry.example.com"),
]
FolderPath = Annotated[Path, PlainValidator(read_path), WithJsonSchema({"type": "string"})]
Topic = Annotated[
    str,
    PlainValidator(_topic),
    _examples(*(grammar.topic_example for grammar in grammars())),
]
Pattern = Annotated[
    TopicPattern,
    PlainValidator(_pattern),
    _as_text,
    _examples(*pattern_examples()),
]
Column = Annotated[
    str,
    PlainValidator(_column),
    WithJsonSchema({"type": "string", "enum": _COLUMNS}),
]
Url = Annotated[
    BrokerUrl,
    PlainValidator(lambda value: parse_url(_text(value))),
    _as_text,
    _examples(*(grammar.url_example for grammar in grammars())),
]


def _http(value: object) -> HttpAddress | None:
    if not isinstance(value, str):
        raise ValueError(f'must be a string such as "127.0.0.1:8650", not {kind(value)}')
    return parse_http_address(value)


PageUrl = Annotated[
    str,
    PlainValidator(lambda value: _check_web_url(_text(value), "http://landing-2:8650")),
    _schema("string", "http://landing-2:8650"),
]
Http = Annotated[
    HttpAddress | None,
    PlainValidator(_http),
    PlainSerializer(lambda value: str(value or ""), when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["127.0.0.1:8650", "unix:/run/fastwire.sock", ""]}),
]


# -- start -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """First position on a log from which no record has landed yet."""

    kind: Literal["earliest", "latest", "time", "positions", "group"]
    time: datetime | None = None
    positions: Mapping[str, Position] = field(default_factory=dict)
    """Positions by the full name of the partition (or of an unpartitioned topic)."""
    offset: int | None = None
    """An offset for every partition, moved into the range that its log holds; a negative one counts from the end. Only
    commands and programs that read at a prompt set it."""
    group: str = ""
    """The consumer group whose committed offsets are the first positions."""

    def __str__(self) -> str:
        if self.time is not None:
            return self.time.isoformat().replace("+00:00", "Z")
        if self.group:
            return f"the offsets of group {self.group}"
        count = len(self.positions)
        return f"positions of {count} partition{'s' * (count != 1)}" if count else self.kind


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def parse_start(value: object, grammar: Grammar | None = None) -> Start:
    """Read the key ``start`` or the option ``--from`` in the grammar of a system.

    Raises ValueError with the choices, and for positions without a ``grammar``.
    """
    if isinstance(value, Mapping):
        if grammar is None:
            raise ValueError("names positions of an unknown system: the url is wrong")
        if (group := group_named(value, grammar)) is not None:
            return Start("group", group=_text(group))
        return Start("positions", positions=_positions(value, grammar))
    if value in ("earliest", "latest"):
        return Start("earliest" if value == "earliest" else "latest")
    if (moment := parse_moment(value)) is not None:
        return _at(moment, str(value))
    if not isinstance(value, str):
        raise ValueError(f"must be {start_choices(grammar)}, not {kind(value)}")
    raise ValueError(f'must be {start_choices(grammar)}, not "{value}"{nearest(value, ("earliest", "latest"))}')


def group_named(table: Mapping[Any, Any], grammar: Grammar) -> object:
    """Return the name in a table such as { group = "connect-orders" }; None for a table of positions."""
    name = next((table[key] for key in ("group", "subscription") if set(table) == {key}), None)
    return None if isinstance(name, str) and grammar.positions.pattern.fullmatch(name) else name


def parse_moment(value: object) -> datetime | None:
    """Return the moment of a time with a zone, or of a duration before now such as "-1h"; None for another value.

    Raises ValueError for what looks like a time and is none.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f'the time "{value.isoformat()}" needs a zone: "{value.isoformat()}Z" is UTC')
        return _utc(value, value.isoformat())
    if isinstance(value, date):
        raise ValueError(f'a date is not a time: write "{value.isoformat()}T00:00:00Z"')
    if not isinstance(value, str):
        return None
    if _RFC3339.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value.upper().replace(" ", "T"))
        except ValueError as exc:
            raise ValueError(f'"{value}" is not a time: {exc}') from None
        return _utc(moment, value)
    if re.fullmatch(r"-\d.*", value):
        ago = parse_duration(value[1:], most_s=float("inf"))  # before 1970 is earliest
        try:
            return _utc(datetime.now(UTC) - timedelta(seconds=ago), value)
        except OverflowError:
            raise ValueError(f'"{value}" is before the earliest possible time') from None
    if re.fullmatch(r"\d{4}-\d\d-\d\d.*", value):
        raise ValueError(f'"{value}" must be a whole RFC 3339 time with its zone, such as "2025-01-31T00:00:00Z"')
    return None


def _utc(moment: datetime, text: str) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError(f'"{text}" is not a time: {exc}') from None


def _at(moment: datetime, text: str) -> Start:
    """Return the start at a moment; before 1970, where brokers count from, it is earliest.

    Raises ValueError if it is not yet: no record lies there, and a wrong clock is less than a day ahead.
    """
    if moment < _EPOCH:
        return Start("earliest")
    if moment - datetime.now(UTC) > timedelta(days=1):
        raise ValueError(f'"{text}" lies in the future: "latest" takes records from now on')
    return Start("time", moment)


def _positions(table: Mapping[Any, Any], grammar: Grammar) -> dict[str, Position]:
    if not table:
        raise ValueError(f"names no partition: {grammar.start_example}")
    positions: dict[str, Position] = {}
    wrong = []
    for name, text in table.items():
        try:
            place, _ = grammar.partition(_text(name))
            if not isinstance(text, str):
                raise ValueError(f"must be a position as in {grammar.start_example}, not {kind(text)}")
            position = grammar.positions.parse(text)
        except ValueError as exc:
            wrong.append(f'"{name}": {exc}')
            continue
        if place in positions:
            wrong.append(f'"{name}": is repeated')
        positions[place] = position
    if wrong:
        raise ValueError("; ".join(wrong))
    return positions


StartField = Annotated[
    Start,
    PlainValidator(lambda value, info: parse_start(value, grammar_in(info))),
    _as_text,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": ["earliest", "latest"]},
                {"type": "string", "format": "date-time"},
                {"type": "object", "additionalProperties": {"type": "string", "pattern": "^-?[0-9]+([:@]-?[0-9]+)?$"}},
            ]
        }
    ),
]


# -- kinds of sinks --------------------------------------------------------------------------------------------------

TABLE_TYPES = ("delta", "iceberg")
DATASET_TYPES = ("parquet", "arrow", "jsonl", *TABLE_TYPES)
DATABASE_TYPES = ("postgresql",)
PLAIN_TYPES = ("stdout", "discard")

# The encoders have the same table; they are not imported here because they import pyarrow.
_PARQUET: dict[str, tuple[int, int] | None] = {
    "zstd": (1, 22), "lz4": None, "snappy": None, "gzip": (1, 9), "none": None,
}  # fmt: skip
_CODECS: dict[str, dict[str, tuple[int, int] | None]] = {
    "parquet": _PARQUET,
    "delta": _PARQUET,
    "iceberg": _PARQUET,
    "arrow": {"zstd": (1, 22), "lz4": None, "none": None},
    "jsonl": {"none": None, "gzip": (1, 9), "zstd": (1, 22)},
}


def plugin_types(group: str) -> tuple[str, ...]:
    """Return the names of the plug-ins that are installed in an entry point group, without the built-in names."""
    from importlib.metadata import entry_points  # imported here because it takes 10 ms

    names = {point.name for point in entry_points(group=group)}
    return tuple(sorted(names.difference(DATASET_TYPES, DATABASE_TYPES, PLAIN_TYPES)))


def sink_kind(name: str) -> Literal["dataset", "database", "plain", "topic", "plugin"]:
    """Return the kind of a sink type: a dataset (files with a log), a table of a database, a built-in sink without a
    log, a topic of the system of that name, or a plug-in.

    Raises ValueError, with the known names, for an unknown name.
    """
    if name in DATASET_TYPES:
        return "dataset"
    if name in DATABASE_TYPES:
        return "database"
    if name in PLAIN_TYPES:
        return "plain"
    if name in SYSTEMS:
        return "topic"
    sinks, encoders = plugin_types("fastwire.sinks"), plugin_types("fastwire.encoders")
    if name in sinks:
        return "plugin"
    if name in encoders:
        return "dataset"
    if name in plugin_types("fastwire.systems"):
        return "topic"
    known = (*DATASET_TYPES, *DATABASE_TYPES, *PLAIN_TYPES, *SYSTEMS, *encoders, *sinks)
    hint = nearest(name, known) or f": known are {', '.join(known)}"
    raise ValueError(f'no sink is called "{name}"{hint}')


def default_compression(sink_type: str) -> str:
    """Return the default compression of a dataset."""
    return "none" if sink_type == "jsonl" else "zstd:1"


def check_compression(sink_type: str, text: str) -> None:
    """Raise ValueError, with the choices, if files of ``sink_type`` do not support this compression."""
    codecs = _CODECS.get(sink_type)
    if codecs is None:
        return  # the encoder of a plug-in checks its own codecs
    name, has_level, level = text.partition(":")
    if name not in codecs:
        hint = nearest(name, codecs) or f": known are {', '.join(codecs)}"
        raise ValueError(f'{sink_type} has no compression "{name}"{hint}')
    span = codecs[name]
    if not has_level:
        return
    if span is None:
        raise ValueError(f'{name} has no levels: write "{name}"')
    if not level.isdecimal() or not span[0] <= int(level) <= span[1]:
        raise ValueError(f'"{text}": the level of {name} is {span[0]} to {span[1]}')
