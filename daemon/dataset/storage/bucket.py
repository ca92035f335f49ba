"""The operations of an object store that a dataset needs. The only module of this package that calls the library.

All operations are small and synchronous, so that a simulated store in tests can fail, delay or repeat any of them.
"""

import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...config.values.secretpath import shown_path
from ...runtime.outside import waits_for
from .awsprofile import keys_of
from .disk import DISK_FULL
from .words import NO_STORE, said

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

PART_BYTES = 8 << 20
"""Size of the parts of an upload but the last: some stores want all of one size."""
LEASE_S = 120.0
"""A writer whose lock has not been written for so long is taken for dead."""

# Enough to hide the latency of a store; more only use memory.
_AT_ONCE = 8
_DELETED_AT_ONCE = 1000
_RANGE_BYTES = 1 << 20
# The library tries for 300 s, and its last attempt may take as long.
_ANSWER_S = 610.0
# A renewal that is under way when a lease ends may come late: the lock that it leaves grows old.
_JOIN_S = 5.0
REFUSED = re.compile(r"non-2xx status code: 4(?!08|09|25|29)\d\d(?!.*<Code>RequestTimeout</Code>)", re.DOTALL)
"""Answers that stay the same however often the request is sent. Amazon says 400 of a request that came too slowly."""


class StoreAwayError(OSError):
    """The store does not answer, or not now (an error of the server, throttling): its effect is unknown."""


class Found(NamedTuple):
    """An object as the store describes it: its size in bytes, and the time of its last change by the store's clock."""

    size: int
    modified: datetime


class Upload:
    """A new object that is written in parts, or by one request if there is one part; it exists after :meth:`close`."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, part: bytes) -> None:
        """Send a part of ``PART_BYTES``, or the last one, and wait until the store has it."""
        with _translated():
            self._writer.write(part)
            self._writer.flush()

    def close(self) -> None:
        """Make the object exist."""
        with _translated():
            self._writer.close()


class Bucket:
    """A bucket of an object store, or what lies below a prefix in it. Names are relative and use "/".

    Errors are OSErrors: :class:`StoreAwayError` where the same request may succeed later, others where not.
    ``small`` is for requests of some KiB, ``large`` for whole files; both lead to the same objects.
    """

    access: Mapping[str, str] = {}
    """Settings for other clients of the store, secrets in clear text."""

    def __init__(
        self,
        url: str,
        small: "ObjectStore",
        large: "ObjectStore",
        lease_s: float = LEASE_S,
        access: Mapping[str, str] | None = None,
        storage_class: str = "",
    ) -> None:
        self.url = url.rstrip("/")
        self.access = access or {}
        self._attributes = {"Storage-Class": storage_class} if storage_class else None
        self._small = small
        self._large = large
        self._lease_s = lease_s

    # --- reading

    def get(self, name: str) -> bytes | None:
        """Return the whole content; None if the object does not exist."""
        import obstore

        try:
            with _translated():
                found = obstore.get(self._small, name)
                _check_answer(found.meta)
                return bytes(found.bytes())
        except FileNotFoundError:
            return None

    def part(self, name: str, start: int, size: int) -> bytes:
        """Return ``size`` bytes from ``start`` on. Raises FileNotFoundError."""
        import obstore

        with _translated():
            return bytes(obstore.get_range(self._large, name, start=start, length=size))

    def head(self, name: str) -> Found | None:
        """Return the object's description; None if it does not exist."""
        import obstore

        try:
            with _translated():
                found = obstore.head(self._small, name)
                _check_answer(found)
        except FileNotFoundError:
            return None
        return Found(found["size"], found["last_modified"])

    def names(self, folder: str) -> list[str]:
        """Return the names of objects and folders in ``folder`` ("": all), sorted; empty if there are none."""
        import obstore

        with _translated():
            found = obstore.list_with_delimiter(self._small, folder or None)
        names = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(name.rpartition("/")[2] for name in names)

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the names of all objects in ``folder`` and below, relative to it, sorted."""
        for page in self.pages(folder):
            yield from page

    def pages(self, folder: str, behind: str = "") -> Iterator[list[str]]:
        """Yield what :meth:`walk` does, behind the name ``behind``, by the page of the store's answer.

        After an error the iterator is at its end: the next one goes on behind the last name.
        """
        import obstore

        offset = f"{folder}/{behind}".lstrip("/") if behind else None
        with _translated():
            batches = iter(obstore.list(self._small, folder or None, offset=offset, chunk_size=1000))
        while True:
            with _translated():
                batch = next(batches, None)
            if batch is None:
                return
            yield [each["path"][len(folder) :].lstrip("/") for each in batch]

    # --- writing

    def put(self, name: str, data: bytes) -> None:
        """Write an object, and replace one with the same name."""
        import obstore

        with self._writing():
            obstore.put(self._large if len(data) > _RANGE_BYTES else self._small, name, data, use_multipart=False)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object if there is none with that name; return False if the store says that there is one.

        After any other answer, and after that one too, the object may exist with this content, now or later.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._writing():
            try:
                obstore.put(self._small, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _translated():
                yield
        except FileNotFoundError as exc:
            raise OSError(f"{self.url}: {exc}") from exc  # of the bucket, not of an object

    def upload(self, name: str) -> Upload:
        """Begin to write a file in parts, in the storage class for files."""
        import obstore

        with _translated():
            writer = obstore.open_writer(
                self._large, name, attributes=self._attributes, buffer_size=PART_BYTES, max_concurrency=1
            )
            return Upload(writer)

    @property
    def copies_later(self) -> bool:
        """True if the store may copy behind its answer, as Azure does: "202", and the status "pending"."""
        return self.url.startswith("az://")

    def copy(self, source: str, target: str) -> bool:
        """Copy an object within the store, replacing ``target``; return False if ``source`` does not exist.

        The copy may not have been made yet: see ``copies_later``.
        """
        import obstore

        try:
            with _translated():
                obstore.copy(self._large, source, target)
        except FileNotFoundError:
            return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, as far as they exist."""
        import obstore

        for first in range(0, len(names), _DELETED_AT_ONCE):
            some = list(names[first : first + _DELETED_AT_ONCE])
            try:
                with _translated():
                    obstore.delete(self._small, some)
            except FileNotFoundError:  # some stores say so of one that is gone, and leave others
                if len(some) > 1:
                    self.each([partial(self.delete, [name]) for name in some])

    def each(self, actions: Sequence[Callable[[], T]]) -> list[T]:
        """Run actions at once and return their results. Raises the first error after all have been tried."""
        if len(actions) < 2:
            return [action() for action in actions]
        with _asked(), ThreadPoolExecutor(min(_AT_ONCE, len(actions)), "store") as threads:
            pending = [threads.submit(action) for action in actions]
        return [future.result() for future in pending]

    # --- leases

    def renew(self, name: str, owner: bytes) -> "Lease":
        """Write the lock ``name``, whose content is ``owner``, again and again until :meth:`Lease.end`."""
        return Lease(self, name, owner, self._lease_s / 4)

    def is_abandoned(self, name: str, own: str) -> bool:
        """Return True if the lock ``name`` is gone or old, compared with ``own`` by the store's clock."""
        found = self.head(name)
        if found is None:
            return True
        mine = self.head(own)
        return mine is not None and (mine.modified - found.modified).total_seconds() > self._lease_s

    # --- the rest

    def now(self) -> float:
        """Return the time of this machine in seconds since 1970."""
        return time.time()

    def new_name(self) -> str:
        """Return 16 random hex digits."""
        return secrets.token_hex(8)

    def lacks(self, exc: OSError) -> str | None:
        """Return what a failed operation waits for; None if waiting cannot help."""
        if isinstance(exc, StoreAwayError):
            return "the store"
        return "space for temporary files" if exc.errno in DISK_FULL else None

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        """Wait for ``seconds``; return True as soon as ``stop`` is set."""
        return stop.wait(seconds)


class Lease:
    """A lock object that is written again and again by a thread, so that other writers see that its owner lives.

    A failure is ignored: the next renewal is near, and a lease that is lost costs its owner the open roll at most.
    """

    def __init__(self, bucket: Bucket, name: str, owner: bytes, every_s: float) -> None:
        self.name = name
        self._bucket = bucket
        self._owner = owner
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self._bucket.put(self.name, self._owner)
            except OSError:
                continue

    def end(self) -> None:
        """Stop the renewals; the lock object stays."""
        self._ended.set()
        self._thread.join(_JOIN_S)


def _asked() -> AbstractContextManager[None]:
    return waits_for("the object store", _ANSWER_S)


def _check_answer(meta: Mapping[str, Any]) -> None:
    """Raise StoreAwayError for an answer that is not one of a store, such as the page of a proxy."""
    if meta["e_tag"] is None:
        raise StoreAwayError(NO_STORE)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise errors of the library as OSErrors."""
    from obstore import exceptions

    try:
        with _asked():
            yield
    except FileNotFoundError as exc:
        raise FileNotFoundError(said(str(exc))) from exc
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as exc:
        raise PermissionError(said(str(exc))) from exc
    except (exceptions.GenericError, exceptions.PreconditionError, exceptions.JoinError) as exc:
        text = str(exc)
        raise (OSError if REFUSED.search(text) else StoreAwayError)(said(str(exc))) from exc
    except exceptions.BaseError as exc:
        raise OSError(said(str(exc))) from exc


def _is_open(settings: Mapping[str, str]) -> bool:
    """Return True if the endpoint of an S3 store is one without TLS."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = settings.get("endpoint") or next((os.environ[name] for name in names if name in os.environ), "")
    return endpoint.startswith("http://")


def open_bucket(url: str, settings: Mapping[str, str] | None = None, *, lease_s: float = LEASE_S) -> Bucket:
    """Return the bucket at ``url`` ("s3://bucket/prefix"). No request is sent.

    ``settings`` are those of the library, besides the environment; "allow_http" and "sign_payload" are "true" or
    "false", "ca" is a file, "storage_class" that of files, "profile" one of AWS. Raises ModuleNotFoundError without the
    library, ValueError for settings that it does not know, a file that cannot be read, or a profile without a key.
    """
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    access = dict(settings or {})
    settings = dict(access)
    client: dict[str, Any] = {
        "allow_http": settings.pop("allow_http", os.environ.get("AWS_ALLOW_HTTP", "false")) == "true"
    }
    if ca := settings.pop("ca", ""):
        try:
            client["root_certificate"] = Path(ca).read_bytes()
        except OSError as exc:
            raise ValueError(f"{ca}: {exc.strerror}") from exc
    if account := settings.get("service_account", ""):
        try:
            Path(account).read_bytes()
        except OSError as exc:
            raise ValueError(f"cannot read the service account {shown_path(account)}: {exc.strerror}") from exc
    storage_class, keys = settings.pop("storage_class", ""), None
    if profile := settings.pop("profile", ""):
        keys, region = keys_of(profile)
        if region is not None:
            settings.setdefault("region", region)
    sign = settings.pop("sign_payload", "")
    if url.startswith("s3://") and (sign or "AWS_UNSIGNED_PAYLOAD" not in os.environ):
        signed = sign == "true" if sign else _is_open(settings)
        settings["unsigned_payload"] = str(not signed).lower()
    try:
        small, large = (
            from_url(
                url,
                config=settings,
                credential_provider=keys,  # type: ignore[call-overload]
                client_options={**client, "connect_timeout": "5s", "timeout": f"{timeout_s}s"},
                retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=timeout_s)},
            )
            # Small requests are repeated here, where a wait is told and can be ended.
            for retries, timeout_s in ((3, 30), (10, 300))
        )
    except BaseError as exc:
        raise ValueError(f"{url}: {said(str(exc))}") from exc
    return Bucket(url, small, large, lease_s, access, storage_class)
