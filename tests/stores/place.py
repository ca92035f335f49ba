"""Places of datasets in tests: folders, and prefixes in the bucket of a real store."""

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow.fs

from fastwire_daemon.dataset.storage.bucket import Bucket, open_bucket
from tests.real.daemon import Job, verify
from tests.stores.reading import s3_files
from tests.stores.servers import BUCKET, KEY, REGION, SECRET, Azurite


class Place(Protocol):
    """The place of one dataset."""

    @property
    def url(self) -> str:
        """Its path or URL, as in a configuration."""

    @property
    def sink(self) -> dict[str, Any]:
        """Keys of the sink that say where it is, unless it is the usual folder."""

    @property
    def reading(self) -> dict[str, str]:
        """Settings that independent readers need beside the path, by the names of Polars; empty for a folder."""

    def local(self) -> Path:
        """A folder with everything that is in the dataset now."""

    def verify(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return the report of ``fastwire-consume verify`` about it."""


@dataclass(frozen=True)
class FolderPlace:
    """A folder of this machine."""

    path: Path

    @property
    def url(self) -> str:
        return str(self.path)

    @property
    def sink(self) -> dict[str, Any]:
        return {}

    @property
    def reading(self) -> dict[str, str]:
        return {}

    def local(self) -> Path:
        return self.path

    def verify(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return verify(self.path, *arguments)


@dataclass(frozen=True)
class BucketPlace:
    """The objects that begin with ``prefix`` in the tests' bucket of the S3 server at ``endpoint``.

    ``folder`` takes what is downloaded.
    """

    endpoint: str
    prefix: str
    folder: Path

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    @property
    def sink(self) -> dict[str, Any]:
        store = {"endpoint": self.endpoint, "allow_http": True, "region": REGION}
        return {"path": self.url, "store": {**store, "access_key_id": KEY, "secret_access_key": SECRET}}

    @property
    def reading(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.environment.items()}

    @property
    def environment(self) -> dict[str, str]:
        """The access by the variables that all clients read."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def through(self, endpoint: str) -> "BucketPlace":
        """The same objects by another way."""
        return replace(self, endpoint=endpoint)

    def bucket(self) -> Bucket:
        """The same objects through the daemon's own access."""
        return _bucket(self.url, self.sink)

    def local(self) -> Path:
        target = self.folder / "downloaded"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        files = s3_files(self.reading)
        here = pyarrow.fs.LocalFileSystem()
        pyarrow.fs.copy_files(f"{BUCKET}/{self.prefix}", str(target), files, here, use_threads=False)
        return target

    def verify(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return verify(self.url, *arguments, env=self.environment)


@dataclass(frozen=True)
class AzurePlace:
    """The objects that begin with ``prefix`` in the tests' container of Azurite at ``endpoint``."""

    endpoint: str
    prefix: str
    folder: Path

    @property
    def url(self) -> str:
        return f"az://{BUCKET}/{self.prefix}"

    @property
    def sink(self) -> dict[str, Any]:
        access = {"account_name": Azurite.ACCOUNT, "account_key": Azurite.ACCOUNT_KEY}
        return {
            "path": self.url,
            "store": {"endpoint": f"{self.endpoint}/{Azurite.ACCOUNT}", "allow_http": True, **access},
        }

    @property
    def reading(self) -> dict[str, str]:
        raise NotImplementedError("not all independent readers reach Azurite")

    def bucket(self) -> Bucket:
        """The same objects through the daemon's own access."""
        return _bucket(self.url, self.sink)

    def local(self) -> Path:
        target = self.folder / "downloaded"
        shutil.rmtree(target, ignore_errors=True)
        bucket = self.bucket()
        for name in bucket.walk(""):
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bucket.get(name) or b"")
        return target

    def verify(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        config = Job("pulsar://127.0.0.1:1", "any", self.folder, sink=self.sink).write(self.folder / "config")
        return verify(self.url, *arguments, "--config", str(config))


def _bucket(url: str, sink: dict[str, Any]) -> Bucket:
    return open_bucket(url, {name: "true" if value is True else value for name, value in sink["store"].items()})
