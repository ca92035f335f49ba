"""Secrets of a configuration that cross the network unencrypted, each as a sentence for a warning."""

from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from .brokers.connection import Connection
from .brokers.secured import Secured
from .brokers.sparksource import SparkBrokers
from .model import PipelineConfig, SinkConfig
from .sinks.catalog import CatalogConfig
from .sinks.database import shown
from .spark import SparkConfig
from .values.address import host_of, is_loopback

_UNENCRYPTED = ("disable", "allow")  # values of sslmode


def of_pipeline(pipeline: PipelineConfig) -> list[str]:
    """Return a sentence for each secret of a pipeline that can be read on its way."""
    found = of_connection(pipeline.source)
    if pipeline.sink.connection is not None:
        found += of_connection(pipeline.sink.connection)
    found += _of_database(pipeline.sink)
    return [*found, *_of_catalog(pipeline.sink.catalog)]


def of_job(job: SparkConfig) -> list[str]:
    """Return the same of a job."""
    found = of_connection(job.source) if isinstance(job.source, SparkBrokers) else []
    return [*found, *_of_catalog(job.output.catalog)]


def of_connection(connection: Connection) -> list[str]:
    """Return the same of a connection to brokers, without that to itself on this machine."""
    if not isinstance(connection, Secured) or connection.url.tls:
        return []
    secret = connection.sends
    if not secret or all(is_loopback(host_of(each)) for each in connection.url.hosts.split(",")):
        return []
    scheme, mark, hosts = str(connection.url).partition("://")
    why = f"{secret} crosses the network unencrypted on the way to {connection.url.hosts}, where anyone can read it"
    return [f"{why}: {scheme}+ssl{mark}{hosts} uses TLS"]


def _of_catalog(catalog: CatalogConfig | None) -> Iterator[str]:
    if catalog is None or catalog.type != "rest":
        return
    secret = "the token" if catalog.token is not None else "the credential" if catalog.credential is not None else ""
    for url in dict.fromkeys((catalog.uri, catalog.oauth2_server_uri if catalog.credential is not None else None)):
        parts = urlsplit(url or "")
        if secret and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield f"{secret} of the catalog crosses the network unencrypted on the way to {parts.netloc}: use https://"


def _of_database(sink: SinkConfig) -> list[str]:
    if sink.url is None or sink.password is None:
        return []
    parts = urlsplit(sink.url)
    given = dict(parse_qsl(parts.query))
    hosts = parts.netloc.rpartition("@")[2] or given.get("host", "")
    local = all(not each or each.startswith("/") or is_loopback(host_of(each)) for each in hosts.split(","))
    if local or given.get("sslmode") not in _UNENCRYPTED:
        return []
    return [f"the password may cross the network unencrypted on the way to {shown(sink.url)}: use sslmode=verify-full"]
