"""The catalog of an Iceberg table in a configuration."""

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from pydantic import SecretStr

from ..brokers.connection import Tell
from ..table import Table
from ..values.fields import Password, Text
from ..values.text import KeyPath
from .store import KEY_OF_AWS, check_key_of_aws, has_password

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_NAME_IN_GLUE = re.compile(r"[a-z0-9_-]+\.[a-z0-9_-]+")
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ONLY_FOR = {
    "rest": ("token", "credential", "scope", "oauth2_server_uri", "sigv4"),
    "sql": ("password",),
    "glue": ("catalog_id",),
}
# Keys for a service that wants requests to be signed.
_OF_AWS = ("region", *KEY_OF_AWS)


class CatalogConfig(Table):
    """The catalog of an Iceberg table. What is not given comes from the configuration of PyIceberg, if it has one."""

    type: Literal["rest", "sql", "glue"]
    """rest: a service with the REST protocol of Iceberg; sql: tables of a database, as PyIceberg keeps them; glue: the
    one of AWS."""
    uri: Text | None = None
    """URL of the service, or of the database: "sqlite:////data/catalog.db". Glue has one in each region."""
    warehouse: Text | None = None
    """rest, sql: the warehouse in the catalog, where it has several."""
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
    sigv4: Text | None = None
    """rest: sign requests for this service of AWS (Signature Version 4), with the keys of glue: "glue" for Glue's REST
    protocol, "execute-api" for a gateway."""
    password: Password | None = None
    """sql: password of the user that the URL names."""
    region: Text | None = None
    """glue, rest with sigv4: region of the catalog."""
    catalog_id: Text | None = None
    """glue: the account whose catalog it is; default: that of the key."""
    access_key_id: Text | None = None
    """glue, rest with sigv4: name of the key. Without a key: environment, profile, web identity, container or instance,
    renewed as needed."""
    secret_access_key: Password | None = None
    """glue, rest with sigv4: the key."""
    session_token: Password | None = None
    """glue, rest with sigv4: token of temporary credentials, which are not renewed."""

    def settings(self, table: str) -> dict[str, str]:
        """Return what is given, secrets in clear text, and the name of the table."""
        settings = {"table": table}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                settings[name] = value.get_secret_value() if isinstance(value, SecretStr) else value
        return settings


class InCatalog(Protocol):
    """A sink whose table may be one of a catalog."""

    @property
    def catalog(self) -> CatalogConfig | None:
        """The catalog; None without one."""

    @property
    def table(self) -> str | None:
        """The name of the table in it."""

    @property
    def branch(self) -> str | None:
        """The branch of the table that gets the files; None: main."""


def catalog_of(sink: InCatalog) -> dict[str, str]:
    """Return the settings of the catalog that has the table of ``sink``, secrets in clear text; {} without one."""
    if sink.catalog is None or sink.table is None:
        return {}
    return sink.catalog.settings(sink.table) | ({} if sink.branch is None else {"branch": sink.branch})


def check_catalog(path: KeyPath, sink: Mapping[str, Any], tell: Tell, kind: str = "type") -> None:
    """Report a catalog and a table that are missing or do not fit the sink, whose kind is under the key ``kind``."""
    iceberg = sink.get(kind) == "iceberg"
    if sink.get(kind) == "delta":
        _check_place_of_delta((*path, "path"), str(sink.get("path", "")), tell)
    for key, what in (("catalog", "the catalog that has the table"), ("table", 'the name of the table: "shop.orders"')):
        if iceberg and key not in sink:
            tell((*path, key), f"is required: {what}")
    if not iceberg:
        for key in ("catalog", "table", "branch"):
            if key in sink:
                tell((*path, key), f'is for {kind} = "iceberg"')
        return
    branch = sink.get("branch")
    if isinstance(branch, str) and not _BRANCH.fullmatch(branch):
        tell((*path, "branch"), 'must be a name of letters, digits, ".", "_" and "-"')
    name, catalog = sink.get("table"), sink.get("catalog")
    type_ = catalog.get("type") if isinstance(catalog, Mapping) else None
    given = name.replace("{topic}", "topic") if isinstance(name, str) else None
    if given is not None and not (_NAME_IN_GLUE if type_ == "glue" else _NAME).fullmatch(given):
        what = "a database, in small letters," if type_ == "glue" else "a namespace"
        tell((*path, "table"), f'must be {what} and a name: "shop.orders"')
    place = str(sink.get("path", ""))
    if place.startswith("az://") and not _has(sink.get("store"), "account_name"):
        tell((*path, "store", "account_name"), "is required: it is in the URLs of the files of an Iceberg table")
    if "#" in place or "?" in place:
        tell((*path, "path"), 'has a "#" or "?", which cut the URLs of the files of an Iceberg table')
    if isinstance(catalog, Mapping):
        _check_keys((*path, "catalog"), catalog, tell)


def _check_place_of_delta(key: KeyPath, place: str, tell: Tell) -> None:
    """Report a path of this machine that programs for Delta look for elsewhere: they take it for part of a URL."""
    whole = os.path.abspath(place)
    if "://" not in place and ("\\" in whole or unquote(whole) != whole):
        tell(key, f'has a "\\" or an escape such as "%20", which programs for Delta take for another path: {whole}')


def _check_keys(path: KeyPath, catalog: Mapping[str, Any], tell: Tell) -> None:
    type_ = catalog.get("type")
    for other, keys in _ONLY_FOR.items():
        for key in keys:
            if key in catalog and type_ != other:
                tell((*path, key), f'is for type = "{other}"')
    signed = type_ == "rest" and "sigv4" in catalog
    if signed or type_ == "glue":
        check_key_of_aws(path, catalog, tell)
    else:
        for key in _OF_AWS:
            if key in catalog:
                tell((*path, key), 'is for type = "glue", or "rest" with sigv4')
    if signed:
        for key in _ONLY_FOR["rest"]:
            if key in catalog and key != "sigv4":
                tell((*path, key), "cannot be used with sigv4: requests are signed instead")
        if "region" not in catalog:
            tell((*path, "region"), "is required: sigv4 signs it")
    if type_ == "glue":
        if "warehouse" in catalog:
            tell((*path, "warehouse"), 'is for type = "rest" and "sql"')
    elif "uri" not in catalog:
        tell((*path, "uri"), "is required: the URL of the service, or of the database")
    for key, instead in (("uri", "password"), ("oauth2_server_uri", "credential")):
        if has_password(catalog.get(key)):
            tell((*path, key), f"has a password: give it as catalog.{instead}")


def _has(table: Any, key: str) -> bool:
    return isinstance(table, Mapping) and key in table
