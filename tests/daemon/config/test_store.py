"""Datasets in object stores: URLs, access, and what is refused."""

import sys
from pathlib import Path

import pytest

from fastwire_daemon.config import ConfigError, SinkConfig
from fastwire_daemon.config.sinks.store import StoreUrl
from fastwire_daemon.dataset.place import bucket_of
from fastwire_daemon.dataset.storage.bucket import Bucket
from tests.support.config_file import MINIMAL, one, problem, source

ORDERS = MINIMAL.replace('path = "/data/orders"\n', "")
TABLE = ORDERS.replace('"parquet"', '"delta"') + "path = 's3://bucket/x'\n"


def sink(keys: str) -> SinkConfig:
    found = one(ORDERS + keys, {"KEY": "hush"}).sink
    assert isinstance(found, SinkConfig)
    return found


def said(keys: str) -> str:
    return problem(ORDERS + keys).partition("pipelines.orders.sink.")[2]


@pytest.mark.parametrize("url", ["s3://bucket/orders", "s3://bucket", "az://lake/a/b=1", "gs://my-bucket.x/orders/"])
def test_the_url_of_a_store_is_a_path(url: str) -> None:
    path = sink(f"path = '{url}'").path
    assert isinstance(path, StoreUrl) and path == url.rstrip("/")


def test_a_folder_stays_a_folder() -> None:
    assert sink("path = '/data/orders'").path == Path("/data/orders")


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///orders", "s3://Bucket/x", "s3://bucket//x", "s3://bucket/../x", "s3://bucket/a b", "s3://b/%2F"],
)
def test_a_url_that_stores_read_differently_is_refused(url: str) -> None:
    assert said(f"path = '{url}'") == 'path: must be a URL such as "s3://bucket/orders", without special characters'


def test_other_schemes_are_refused() -> None:
    assert said("path = 's3a://bucket/orders'") == "path: must be a folder or a URL with s3://, az:// or gs://"


def test_the_settings_of_a_store_are_those_of_the_library() -> None:
    found = sink(
        """
path = "s3://bucket/orders"
[pipelines.orders.sink.store]
endpoint = "http://localhost:9000"
allow_http = true
region = "eu"
access_key_id = "me"
secret_access_key = "${KEY}"
sign_payload = false
"""
    )
    assert found.store is not None
    assert found.store.settings() == {
        "endpoint": "http://localhost:9000",
        "allow_http": "true",
        "region": "eu",
        "access_key_id": "me",
        "secret_access_key": "hush",
        "sign_payload": "false",
    }
    assert "hush" not in repr(found)
    bucket = bucket_of(found)
    assert isinstance(bucket, Bucket) and bucket.url == "s3://bucket/orders"


def test_each_kind_of_store_can_be_opened() -> None:
    for keys in (
        'path = "az://lake/orders"\nstore = { account_name = "lake", account_key = "a2V5" }',
        'path = "gs://lake/orders"',
    ):
        assert isinstance(bucket_of(sink(keys)), Bucket)


def test_what_the_library_refuses_is_a_mistake_of_the_configuration() -> None:
    found = sink('path = "gs://lake/orders"\nstore = { service_account = "/none.json" }')
    with pytest.raises(ConfigError, match=r"sink.store: cannot read the service account"):
        bucket_of(found)


MISTAKES = {
    "path = '/data'\nstore = { region = 'eu' }": "store: is for object stores: path is not a URL with s3://, az:// or gs://",
    "path = 'gs://bucket/x'\nstore = { region = 'eu' }": "store.region: is for s3:// only",
    "path = 's3://bucket/x'\nstore = { account_name = 'lake' }": "store.account_name: is for az:// only",
    "path = 's3://bucket/x'\nstore = { access_key_id = 'me' }": "store.access_key_id: secret_access_key is missing",
    "path = 's3://bucket/x'\nstore = { endpoint = 'http://x' }": (
        "store.endpoint: is without TLS: allow_http = true is missing"
    ),
    "path = 'gs://bucket/x'\nstore = { endpoint = 'https://x' }": "store.endpoint: is for s3:// and az:// only",
    "path = 's3://bucket/x'\nroll = { bytes = '5GiB' }": "roll.bytes: is too large for an object store: at most 4GiB",
    "path = 's3://bucket/x'\nstore = { bucket = 'x' }": "store.bucket: unknown key",
    "path = 's3://bucket/x'\nstore = { profile = 'a', access_key_id = 'me', secret_access_key = 'x' }": (
        "store.profile: cannot be used with access_key_id"
    ),
    "path = 'az://lake/x'\nstore = { sign_payload = true }": "store.sign_payload: is for s3:// only",
}


@pytest.mark.parametrize("keys", MISTAKES)
def test_mistakes_are_named(keys: str) -> None:
    assert said(keys) == MISTAKES[keys]


def test_files_of_tables_have_a_storage_class() -> None:
    store = one(TABLE + "store = { storage_class = 'STANDARD_IA' }").sink.store
    assert store is not None and store.settings() == {"storage_class": "STANDARD_IA"}
    refused = problem(TABLE + "store = { storage_class = 'GLACIER' }")
    assert refused.endswith("sink.store.storage_class: is an archive: what is in it cannot be read")
    assert said("path = 's3://bucket/x'\nstore = { storage_class = 'STANDARD_IA' }") == (
        "store.storage_class: is for delta and iceberg only"
    )


@pytest.mark.parametrize(("key", "instead"), [("ca", "set SSL_CERT_FILE instead"), ("profile", "give a key or a role")])
def test_what_the_library_of_delta_does_not_know_is_refused(key: str, instead: str) -> None:
    told = f"sink.store.{key}: is not known to the library of Delta tables: {instead}"
    assert problem(TABLE + f"store = {{ {key} = '/x' }}").endswith(told)


def test_other_files_are_not_in_a_store() -> None:
    text = source(url="'pulsar+ssl://127.0.0.1'", tls="{ ca = 's3://bucket/ca.pem' }")
    assert problem(text).endswith("source.tls.ca: must be a path of this machine, not a URL")


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigError, match=r"needs the package obstore.*pip install 'fastwire-daemon\[lake\]'"):
        bucket_of(sink('path = "s3://bucket/x"'))


def test_the_package_for_profiles_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    with pytest.raises(ConfigError, match=r"sink.store.profile: needs the package botocore.*\[aws\]'"):
        bucket_of(sink('path = "s3://bucket/x"\nstore = { profile = "audit" }'))
