"""The catalog of an Iceberg table in a configuration."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import SecretStr

from .connection import Tell
from .fields import Password, Text
from .table import Table
from .text import KeyPath

__all__ = ["CatalogConfig", "check_catalog"]

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_WITH_PASSWORD = re.compile(r"[^/]*://[^/@]*:[^/@]*@")
_ONLY_FOR = {"rest": ("token", "credential", "scope", "oauth2_server_uri"), "sql": ("password",)}


class CatalogConfig(Table):
    """The catalog of an Iceberg table. What is not given comes from the configuration of PyIceberg, if it has one."""

    type: Literal["rest", "sql"]
    """rest: a service with the REST protocol of Iceberg; sql: tables of a database, as PyIceberg keeps them."""
    uri: Text
    """URL of the service, or of the database: "sqlite:////data/catalog.db"."""
    warehouse: Text | None = None
    """The warehouse in the catalog, where it has several."""
    name: Text = "default"
    """The name of the catalog, by which PyIceberg finds its configuration, and tables of a database belong to it."""
    token: Password | None = None
    """rest: bearer token."""
    credential: Password | None = None
    """rest: id and secret for OAuth2, "id:secret"."""
    scope: Text | None = None
    """rest: scope of the token that the credential gives; default: catalog."""
    oauth2_server_uri: Text | None = None
    """rest: URL that gives tokens; default: that of the catalog, URI/v1/oauth/tokens."""
    password: Password | None = None
    """sql: password of the user that the URL names."""

    def settings(self, table: str) -> dict[str, str]:
        """Return what is given, secrets in clear text, and the name of the table."""
        settings = {"table": table}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                settings[name] = value.get_secret_value() if isinstance(value, SecretStr) else value
        return settings


def check_catalog(path: KeyPath, sink: Mapping[str, Any], tell: Tell) -> None:
    """Report a catalog and a table that are missing or do not fit the type of the sink."""
    iceberg = sink.get("type") == "iceberg"
    for key, what in (("catalog", "the catalog that has the table"), ("table", 'the name of the table: "shop.orders"')):
        if iceberg and key not in sink:
            tell((*path, key), f"is required: {what}")
        if not iceberg and key in sink:
            tell((*path, key), 'is for type = "iceberg"')
    if not iceberg:
        return
    name, catalog = sink.get("table"), sink.get("catalog")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        tell((*path, "table"), 'must be a namespace and a name: "shop.orders"')
    place = str(sink.get("path", ""))
    if place.startswith(("az://", "gs://")):
        tell((*path, "path"), "is for other sinks: the files of an Iceberg table lie in a folder or in s3://")
    if "#" in place or "?" in place:
        tell((*path, "path"), 'has a "#" or "?", which cut the URLs of the files of an Iceberg table')
    if isinstance(catalog, Mapping):
        for type_, keys in _ONLY_FOR.items():
            for key in keys:
                if key in catalog and catalog.get("type") != type_:
                    tell((*path, "catalog", key), f'is for type = "{type_}"')
        if _WITH_PASSWORD.match(str(catalog.get("uri", ""))):
            tell((*path, "catalog", "uri"), "has a password: give it as catalog.password")
