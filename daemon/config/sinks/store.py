"""Object stores in a configuration: the URL of a dataset, and the access to its store."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, SecretStr, WithJsonSchema

from ..brokers.connection import Tell
from ..table import Table
from ..values.fields import TABLE_TYPES, FolderPath, Password, Switch, Text, read_path
from ..values.text import KeyPath, either, format_size, parse_size

SCHEMES = ("s3://", "az://", "gs://")
# What may be in a name and means the same in each URL and each listing.
_URL = re.compile(r"(?:s3|az|gs)://[a-z0-9][a-z0-9._-]{1,62}(?:/[A-Za-z0-9!_.*'()=+,@-]+)*")
_WITH_PASSWORD = re.compile(r"[^/]*://[^/@]*:[^/@]*@")
# A larger object cannot be copied by one request (S3).
_MOST_BYTES = 4 << 30
KEY_OF_AWS = ("access_key_id", "secret_access_key", "session_token")
"""Keys of a table that say who asks a service of AWS."""

_ENCRYPTION = ("server_side_encryption", "sse_kms_key_id")
_NOT_FOR_DELTA = {"ca": "set SSL_CERT_FILE instead", "profile": "give a key or a role"}
ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes of S3 whose objects have to be restored, for hours, before they can be read."""
# Keys that only one kind of store knows.
_ONLY_FOR = {
    "s3://": ("region", *KEY_OF_AWS, "profile", "sign_payload", "storage_class", *_ENCRYPTION),
    "az://": ("account_name", "account_key"),
    "gs://": ("service_account",),
}


class StoreUrl(str):
    """The URL of a dataset in an object store: scheme, bucket and prefix."""

    __slots__ = ()


def parse_dataset_path(value: object) -> Path | StoreUrl:
    """Read the place of a dataset: a folder, or a URL of an object store. Raises ValueError."""
    if not isinstance(value, str) or "://" not in value:
        return read_path(value)
    if not value.startswith(SCHEMES):
        raise ValueError(f"must be a folder or a URL with {either([*SCHEMES])}")
    url = value.rstrip("/")
    if not _URL.fullmatch(url.replace("{topic}", "topic")) or any(part in (".", "..") for part in url.split("/")):
        raise ValueError('must be a URL such as "s3://bucket/orders", without special characters')
    return StoreUrl(url)


DatasetPath = Annotated[
    Path | StoreUrl,
    PlainValidator(parse_dataset_path),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["/data/orders", "s3://bucket/orders"]}),
]


class StoreConfig(Table):
    """Access to the object store of the dataset. What is not given comes from the environment, as for other clients."""

    endpoint: Text | None = None
    """URL of the service, for stores other than those of Amazon, Microsoft and Google."""
    allow_http: Switch = False
    """Allow an endpoint without TLS."""
    ca: FolderPath | None = None
    """CA certificates to trust (PEM) besides those of the system; for Delta tables set ``SSL_CERT_FILE`` instead."""
    region: Text | None = None
    """S3: region of the bucket."""
    access_key_id: Text | None = None
    """S3: name of the key. Without a key and a profile: environment, web identity, container or instance, renewed as
    needed."""
    secret_access_key: Password | None = None
    """S3: the key."""
    profile: Text | None = None
    """S3: profile in the files of AWS's tools (``~/.aws``) that has the key, renewed as needed. Needs the extra aws."""
    session_token: Password | None = None
    """S3: token of temporary credentials, which are not renewed."""
    sign_payload: Switch | None = None
    """S3: sign the content of uploads, which costs a SHA-256. Default: only without TLS, which protects it as well."""
    server_side_encryption: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """S3: encryption of new objects; default: that of the bucket."""
    sse_kms_key_id: Text | None = None
    """S3: the KMS key of new objects."""
    storage_class: Text | None = None
    """S3: storage class of a table's files. Those of other datasets are copied to their names, in the usual class."""
    account_name: Text | None = None
    """Azure: storage account."""
    account_key: Password | None = None
    """Azure: the account's key."""
    service_account: FolderPath | None = None
    """Google: file with the key of a service account."""

    def settings(self) -> dict[str, str]:
        """Return what is given as ``open_bucket`` takes it, secrets in clear text."""
        settings = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                settings[name] = value.get_secret_value()
            elif value != field.default:
                settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return settings


def has_password(url: object) -> bool:
    """Return True for a URL with a user and a password, which would be in errors."""
    return _WITH_PASSWORD.match(str(url)) is not None


def check_store(path: KeyPath, sink: Mapping[str, Any], tell: Tell) -> None:
    """Report keys of the store that do not fit the URL of the dataset, and rolls that are too large for a store."""
    url, store = sink.get("path"), sink.get("store")
    if not isinstance(url, str) or not url.startswith(SCHEMES):
        if store is not None:
            tell((*path, "store"), f"is for object stores: path is not a URL with {either([*SCHEMES])}")
        return
    if isinstance(store, Mapping):
        form = sink.get("type", sink.get("format"))  # of a pipeline, or of a job
        for scheme, keys in _ONLY_FOR.items():
            for key in keys:
                if key in store and not url.startswith(scheme):
                    tell((*path, "store", key), f"is for {scheme} only")
        if "endpoint" in store and url.startswith("gs://"):
            tell((*path, "store", "endpoint"), "is for s3:// and az:// only")
        if form == "delta":
            for key, instead in _NOT_FOR_DELTA.items():
                if key in store:
                    tell((*path, "store", key), f"is not known to the library of Delta tables: {instead}")
        if "profile" in store and "access_key_id" in store:
            tell((*path, "store", "profile"), "cannot be used with access_key_id")
        if "storage_class" in store and form not in TABLE_TYPES:
            tell((*path, "store", "storage_class"), f"is for {' and '.join(TABLE_TYPES)} only")
        elif store.get("storage_class") in ARCHIVES:
            tell((*path, "store", "storage_class"), "is an archive: what is in it cannot be read")
        check_key_of_aws((*path, "store"), store, tell)
        if has_password(store.get("endpoint")):
            tell((*path, "store", "endpoint"), "has a password: give keys instead")
        elif str(store.get("endpoint", "")).startswith("http://") and store.get("allow_http") not in (True, "true"):
            tell((*path, "store", "endpoint"), "is without TLS: allow_http = true is missing")
    roll = sink.get("roll")
    try:
        most = parse_size(roll["bytes"]) if isinstance(roll, Mapping) and "bytes" in roll else 0
    except ValueError:
        return  # reported where it is read
    if most > _MOST_BYTES:
        tell((*path, "roll", "bytes"), f"is too large for an object store: at most {format_size(_MOST_BYTES)}")


def check_key_of_aws(path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
    """Report a key of AWS that is there in part."""
    for one, other in (("access_key_id", "secret_access_key"), ("secret_access_key", "access_key_id")):
        if one in table and other not in table:
            tell((*path, one), f"{other} is missing")
