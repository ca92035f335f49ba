"""Types of single configuration values: what text is accepted, what it becomes, what a mistake is answered with."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import PlainSerializer, PlainValidator, SecretStr, ValidationInfo, WithJsonSchema

from fastwire.columns.schema import COLUMNS
from fastwire.position import Position, parse_position

from .address import HttpAddress, parse_http_address, parse_url
from .systems import PULSAR, SourceUrl, System, TopicPattern, system_of
from .text import format_duration, format_size, kind, nearest, parse_duration, parse_size

__all__ = [
    "DATASET_TYPES",
    "PLAIN_TYPES",
    "Column",
    "Count",
    "Duration",
    "FolderPath",
    "Http",
    "IssuerUrl",
    "Natural",
    "Password",
    "Pattern",
    "Secret",
    "Size",
    "SomeSize",
    "SomeTime",
    "Start",
    "StartField",
    "Switch",
    "Text",
    "Topic",
    "Url",
    "UserName",
    "check_compression",
    "check_issuer_url",
    "default_compression",
    "plugin_types",
    "sink_kind",
]

START_CHOICES = (
    '"earliest" (everything the topic holds), "latest" (only what is produced from the first start on), '
    'an RFC 3339 time such as "2025-01-31T00:00:00Z" (what was published since), '
    'or { "<topic>-partition-0" = "12:34" } (what follows that position)'
)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind(value)}")
    if not value.strip():
        raise ValueError("is empty")
    return value


def _whole(value: object, lowest: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"\d{1,18}", value):
        value = int(value)  # a number can only come out of ${ENV} as text
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {kind(value)}")
    if value < lowest:
        raise ValueError(f"must be at least {lowest}, not {value}")
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
            raise ValueError("must be more than nothing")
        return number

    return parsed


def _secret(value: object) -> SecretStr:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind(value)}")
    text = value.strip().removeprefix("token:")
    if not text:
        raise ValueError("is empty")
    if not text.isascii() or not text.isprintable():
        raise ValueError("holds characters that no token has")
    return SecretStr(text)


def _password(value: object) -> SecretStr:
    text = _text(value)
    if not text.isprintable():
        raise ValueError("holds characters that no password has")
    return SecretStr(text)


def _user(value: object) -> str:
    text = _text(value)
    if ":" in text or not text.isprintable():
        raise ValueError("holds a character that no user has")  # user and password go as user:password
    return text


def check_issuer_url(text: str) -> str:
    """Return ``text`` if a secret may be sent there; raises ValueError if it is no URL, or in the clear."""
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        host, url = None, urlsplit("")
    if not host or url.scheme not in ("https", "http") or url.username is not None or url.query or url.fragment:
        raise ValueError('must be a URL such as "https://login.example.com"')
    if url.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("must be https://: the secret would go over the network in the clear")
    return text


_COLUMNS = list(dict.fromkeys(column.name for columns in COLUMNS.values() for column in columns))


def _column(value: object) -> str:
    known = _COLUMNS
    if value not in known:
        shown = f'"{value}"' if isinstance(value, str) else kind(value)
        hint = nearest(value, known) if isinstance(value, str) else ""
        raise ValueError(f"{shown} is not a column{hint or ': known are ' + ', '.join(known)}")
    return str(value)


def _path(value: object) -> Path:
    text = _text(value)
    if "\0" in text:
        raise ValueError("holds a zero byte")
    return Path(text)


def _topic(value: object, info: ValidationInfo) -> str:
    return _system(info).topic(_text(value))


def _pattern(value: object, info: ValidationInfo) -> TopicPattern:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {kind(value)}")
    return _system(info).pattern(value)


def _system(info: ValidationInfo) -> System:
    """That of the source's URL, which stands before the other keys of its table."""
    return system_of(info.data.get("url", ""))


def _schema(kind_of_value: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": kind_of_value, "examples": [example]})


_size_schema = WithJsonSchema({"type": ["string", "integer"], "examples": ["128MiB"]})
_size_text = PlainSerializer(format_size, when_used="json")
_time_schema = _schema("string", "30s")
_time_text = PlainSerializer(format_duration, when_used="json")
_as_text = PlainSerializer(str, when_used="json")

Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
Natural = Annotated[
    int, PlainValidator(lambda value: _whole(value, 0)), WithJsonSchema({"type": "integer", "minimum": 0})
]
Count = Annotated[
    int, PlainValidator(lambda value: _whole(value, 1)), WithJsonSchema({"type": "integer", "minimum": 1})
]
Switch = Annotated[bool, PlainValidator(_switch), WithJsonSchema({"type": "boolean"})]
Size = Annotated[int, PlainValidator(parse_size), _size_text, _size_schema]
SomeSize = Annotated[int, PlainValidator(_some(parse_size)), _size_text, _size_schema]
Duration = Annotated[float, PlainValidator(parse_duration), _time_text, _time_schema]
SomeTime = Annotated[float, PlainValidator(_some(parse_duration)), _time_text, _time_schema]
Secret = Annotated[SecretStr, PlainValidator(_secret), _as_text, WithJsonSchema({"type": "string", "writeOnly": True})]
Password = Annotated[
    SecretStr, PlainValidator(_password), _as_text, WithJsonSchema({"type": "string", "writeOnly": True})
]
UserName = Annotated[str, PlainValidator(_user), WithJsonSchema({"type": "string", "minLength": 1})]
IssuerUrl = Annotated[
    str, PlainValidator(lambda value: check_issuer_url(_text(value))), _schema("string", "https://login.example.com")
]
FolderPath = Annotated[Path, PlainValidator(_path), WithJsonSchema({"type": "string"})]
Topic = Annotated[str, PlainValidator(_topic), _schema("string", "persistent://public/default/orders")]
Pattern = Annotated[
    TopicPattern,
    PlainValidator(_pattern),
    _as_text,
    WithJsonSchema({"type": "string", "examples": ["persistent://public/default/orders-.*", "orders-.*"]}),
]
Column = Annotated[
    str,
    PlainValidator(_column),
    WithJsonSchema({"type": "string", "enum": _COLUMNS}),
]
Url = Annotated[
    SourceUrl,
    PlainValidator(lambda value: parse_url(_text(value))),
    _as_text,
    _schema("string", "pulsar://127.0.0.1:6650"),
]


def _http(value: object) -> HttpAddress | None:
    if not isinstance(value, str):
        raise ValueError(f'must be a string such as "127.0.0.1:8650", not {kind(value)}')
    return parse_http_address(value)


Http = Annotated[
    HttpAddress | None,
    PlainValidator(_http),
    PlainSerializer(lambda value: str(value or ""), when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["127.0.0.1:8650", "unix:/run/fastwire.sock", ""]}),
]


# -- start -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins on a log of which nothing has landed yet."""

    kind: Literal["earliest", "latest", "time", "positions"]
    time: datetime | None = None
    positions: Mapping[str, Position] = field(default_factory=dict)
    """By full name of the partition (or of an unpartitioned topic)."""

    def __str__(self) -> str:
        if self.time is not None:
            return self.time.isoformat().replace("+00:00", "Z")
        return f"positions of {len(self.positions)} partitions" if self.positions else self.kind


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def parse_start(value: object, system: System = PULSAR) -> Start:
    """Read the key ``start`` or the option ``--from``; raises ValueError with the choices."""
    if isinstance(value, Mapping):
        return Start("positions", positions=_positions(value, system))
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f'the time "{value.isoformat()}" needs a zone: "{value.isoformat()}Z" is UTC')
        return Start("time", value.astimezone(UTC))
    if isinstance(value, date):
        raise ValueError(f'a date is not a time: write "{value.isoformat()}T00:00:00Z"')
    if not isinstance(value, str):
        raise ValueError(f"must be {START_CHOICES}, not {kind(value)}")
    if value in ("earliest", "latest"):
        return Start("earliest" if value == "earliest" else "latest")
    if _RFC3339.fullmatch(value):
        try:
            return Start("time", datetime.fromisoformat(value.upper().replace(" ", "T")).astimezone(UTC))
        except (ValueError, OverflowError) as exc:
            raise ValueError(f'"{value}" is not a time: {exc}') from None
    if re.fullmatch(r"\d{4}-\d\d-\d\d.*", value):
        raise ValueError(f'"{value}" must be a whole RFC 3339 time with its zone, such as "2025-01-31T00:00:00Z"')
    raise ValueError(f'must be {START_CHOICES}, not "{value}"{nearest(value, ("earliest", "latest"))}')


def _positions(table: Mapping[Any, Any], system: System) -> dict[str, Position]:
    if not table:
        raise ValueError(f"names no partition: {system.example}")
    positions: dict[str, Position] = {}
    wrong = []
    for name, text in table.items():
        try:
            place, _ = system.place(_text(name))
            if not isinstance(text, str):
                raise ValueError(f"must be a position as in {system.example}, not {kind(text)}")
            position = parse_position(system.name, text)
        except ValueError as exc:
            wrong.append(f'"{name}": {exc}')
            continue
        if place in positions:
            wrong.append(f'"{name}": stands here twice')
        positions[place] = position
    if wrong:
        raise ValueError("; ".join(wrong))
    return positions


StartField = Annotated[
    Start,
    PlainValidator(lambda value, info: parse_start(value, _system(info))),
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

DATASET_TYPES = ("parquet", "arrow", "jsonl")
PLAIN_TYPES = ("stdout", "discard")

# As in the encoders, which are not asked here because they bring pyarrow with them.
_CODECS: dict[str, dict[str, tuple[int, int] | None]] = {
    "parquet": {"zstd": (1, 22), "lz4": None, "snappy": None, "gzip": (1, 9), "none": None},
    "arrow": {"zstd": (1, 22), "lz4": None, "none": None},
    "jsonl": {"none": None, "gzip": (1, 9), "zstd": (1, 22)},
}


def plugin_types(group: str) -> tuple[str, ...]:
    """Return the names that installed plug-ins give to an entry point group, without those that are built in."""
    from importlib.metadata import entry_points  # 10 ms that a start without plug-ins need not wait for

    names = {point.name for point in entry_points(group=group)}
    return tuple(sorted(names.difference(DATASET_TYPES, PLAIN_TYPES)))


def sink_kind(name: str) -> Literal["dataset", "plain", "plugin"]:
    """Say what a sink type is: files with a log, something built in without one, or a plug-in.

    Raises ValueError, with what is known, for a name that nothing installed answers to.
    """
    if name in DATASET_TYPES:
        return "dataset"
    if name in PLAIN_TYPES:
        return "plain"
    sinks, encoders = plugin_types("fastwire.sinks"), plugin_types("fastwire.encoders")
    if name in sinks:
        return "plugin"
    if name in encoders:
        return "dataset"
    known = (*DATASET_TYPES, *PLAIN_TYPES, *encoders, *sinks)
    hint = nearest(name, known) or f": known are {', '.join(known)}"
    raise ValueError(f'no sink is called "{name}"{hint}')


def default_compression(sink_type: str) -> str:
    """The compression of a dataset whose configuration names none."""
    return "zstd:1" if sink_type in ("parquet", "arrow") else "none"


def check_compression(sink_type: str, text: str) -> None:
    """Raise ValueError, with what there is, if files of ``sink_type`` cannot be compressed in this way."""
    codecs = _CODECS.get(sink_type)
    if codecs is None:
        return  # an encoder of somebody else's knows its own
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
