"""The files of an Iceberg table, as the library of the format reads and writes them in the place of the dataset.

On a disk they are durable before a commit names them. In an object store they are reached by the dataset's own access,
so that all stores, and all their settings, are the same for a table and for its files.
"""

import io
import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from ..place import storage_at
from ..storage.base import Storage
from ..storage.bucket import Bucket, open_bucket

_ROOT, _LOCATION, _ACCESS = "fastwire.root", "fastwire.location", "fastwire.access"
# Those of S3 as the library has them, for files of the table that other programs have put elsewhere.
_ELSEWHERE = {
    "endpoint": "s3.endpoint", "region": "s3.region", "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key", "session_token": "s3.session-token",
}  # fmt: skip


def file_properties(root: str, location: str, access: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalog that make its tables use :class:`TableFileIO`.

    ``root`` is the path or URL of the dataset, ``location`` the URL that it has in tables, ``access`` the settings of
    its store.
    """
    return {
        "py-io-impl": f"{TableFileIO.__module__}.{TableFileIO.__name__}",
        _ROOT: root,
        _LOCATION: location,
        _ACCESS: json.dumps(access, sort_keys=True),
        **{_ELSEWHERE[name]: value for name, value in access.items() if name in _ELSEWHERE},
    }


class TableFileIO(PyArrowFileIO):
    """Files of a table as the library has them, but for those in the place of the dataset, and of this machine."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self._prefix = f"{properties[_LOCATION]}/"
        root = properties[_ROOT]
        self._bucket = _bucket(root, properties[_ACCESS]) if "://" in root else None

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        """Return a file to read."""
        found = self._object(location)
        return super().new_input(location) if found is None else found

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        """Return a file to write."""
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme == "file":
            return _LocalFile(location, path, self.fs_by_scheme(scheme, None))
        found = self._object(location)
        return super().new_output(location) if found is None else found

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        name = location if isinstance(location, str) else location.location
        found = self._object(name)
        if found is None:
            super().delete(name)
        else:
            found.bucket.delete([found.name])

    def _object(self, location: str) -> "_Object | None":
        if self._bucket is None or not location.startswith(self._prefix):
            return None
        return _Object(location, self._bucket, location.removeprefix(self._prefix))


@lru_cache(maxsize=64)
def _bucket(root: str, access: str) -> Bucket:
    return open_bucket(root, json.loads(access))


class _Object(InputFile, OutputFile):
    """An object of the dataset's store, below the dataset. Its name is new where one is written, so nothing is lost."""

    def __init__(self, location: str, bucket: Bucket, name: str) -> None:
        super().__init__(location)
        self.bucket = bucket
        self.name = name
        self._storage: Storage = storage_at("", bucket, patient=False)

    def __len__(self) -> int:
        size = self._storage.size(self.name)
        if size is None:
            raise FileNotFoundError(f"{self.location} does not exist")
        return size

    def exists(self) -> bool:
        return self._storage.exists(self.name)

    def open(self, seekable: bool = True) -> Any:
        return self._storage.reader(self.name)

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> Any:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists")
        return _Uploaded(self.bucket, self.name)


class _Uploaded(io.BytesIO):
    """The content of an object that is written when it is complete."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        super().__init__()
        self._bucket = bucket
        self._name = name

    def close(self) -> None:
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        self._bucket.put(self._name, content)


class _LocalFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        folder = os.path.dirname(self._path)
        os.makedirs(folder, exist_ok=True)
        return _Synced(open(self._path, "wb" if overwrite else "xb", buffering=0))


class _Synced(io.BufferedWriter):
    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        folder = os.path.dirname(os.fsdecode(self.raw.name))  # type: ignore[attr-defined]
        super().close()
        for each in (folder, os.path.dirname(folder)):
            number = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
