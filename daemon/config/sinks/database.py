"""The table of a database as a sink: its URL, and the rules between its keys."""

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pydantic import PlainValidator, WithJsonSchema

from ..brokers.connection import Tell
from ..values.text import KeyPath

DATABASE_KEYS = ("url", "password", "mode", "key", "envelope", "types", "timeout")
"""Keys of a sink that only a database has."""
_EXAMPLE = "postgresql://loader@db.example.com/shop"
_TABLE = re.compile(r"(?:([^.\x00]+)\.)?([^.\x00]+)")
_LONGEST = 63  # bytes of a name
# A connection that the network has forgotten is noticed by either side. Texts are UTF-8: without being told, the server
# would take their bytes for those of its own encoding.
_PARAMETERS = {
    "client_encoding": "UTF8",
    "application_name": "fastwire",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


def read_url(value: object) -> str:
    """Read the URL of a database. Raises ValueError for one that is wrong or has a password."""
    if not isinstance(value, str) or not value.startswith(("postgresql://", "postgres://")):
        raise ValueError(f'must be a URL such as "{_EXAMPLE}"')
    try:
        parts = urlsplit(value)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
    except ValueError:
        raise ValueError(f'must be a URL such as "{_EXAMPLE}"') from None
    if ":" in parts.netloc.rpartition("@")[0] or given.keys() & {"password", "sslpassword"}:
        raise ValueError("has a password, which would be in messages: give it as the key password")
    if parts.fragment or "\0" in value:
        raise ValueError(f'must be a URL such as "{_EXAMPLE}"')
    return value


DatabaseUrl = Annotated[
    str,
    PlainValidator(read_url),
    WithJsonSchema({"type": "string", "examples": ["postgresql://loader@db.example.com/shop"]}),
]


def shown(url: str) -> str:
    """Return the servers and the database of a URL, for messages."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
    return f"PostgreSQL at {host}{parts.path}"


def connection_uri(url: str, password: str | None) -> str:
    """Return the URI for libpq: with the password, and with limits of time unless the URL has others."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    servers = parts.netloc.rpartition("@")[2]
    more = {name: value for name, value in _PARAMETERS.items() if name not in given}
    if "," in servers and "target_session_attrs" not in given:
        more["target_session_attrs"] = "read-write"
    if password is not None:
        more["password"] = password
    query = "&".join(filter(None, (parts.query, urlencode(more, quote_via=quote))))
    return f"postgresql://{parts.netloc}{parts.path}?{query}"


def table_parts(table: str) -> tuple[str, str]:
    """Return schema and name of a table."""
    schema, _, name = table.rpartition(".")
    return schema or "public", name


def check_database(path: KeyPath, sink: Mapping[str, Any], tell: Tell) -> None:
    """Report keys of a table in a database that are missing or do not fit each other."""
    for required, what in (("url", f'the database, such as "{_EXAMPLE}"'), ("table", 'a name such as "orders"')):
        if required not in sink:
            tell((*path, required), f"is required: {what}")
    table = sink.get("table")
    if isinstance(table, str) and table.strip():
        if not _TABLE.fullmatch(table):
            tell((*path, "table"), 'must be a name, or a schema and a name: "shop.orders"')
        elif any(len(part.encode()) > _LONGEST for part in table_parts(table)):
            tell((*path, "table"), f"has a name of more than {_LONGEST} bytes")
    upsert, key = sink.get("mode") == "upsert", sink.get("key")
    if upsert and not key:
        tell((*path, "key"), 'is required for upsert: the columns of the key, such as ["id"]')
    if not upsert and "key" in sink:
        tell((*path, "key"), 'is for mode = "upsert"')
    if isinstance(key, list) and len(set(map(str, key))) < len(key):
        tell((*path, "key"), "names a column twice")
    if not upsert and sink.get("envelope") == "debezium":
        tell((*path, "envelope"), 'needs mode = "upsert" with the key of the table')
