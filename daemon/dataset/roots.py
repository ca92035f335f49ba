"""Datasets beside, above and below a place: those of a sink that has one for each topic, and what has landed in each.

Nothing is written.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ..config import SinkConfig
from ..config.sinks.store import StoreUrl, parse_dataset_path
from ..config.sinks.topicplaces import place_pattern
from ..config.values.fields import TOPIC
from ..runtime.errors import DatasetDamagedError
from .commitlog.chain import entries_behind
from .commitlog.checkpoint import Checkpoint, newest_checkpoint
from .commitlog.entry import LogEntry, entry_name
from .description import DESCRIPTION, Description, read_description
from .place import bucket_of, storage_at
from .storage.base import Storage
from .storage.bucket import Bucket, open_bucket

_AT_ONCE = 16  # datasets that are read at a time: most of it is waiting
_READ_AHEAD = 64  # log entries
_FOLDERS = 10_000  # below a place that are looked at, on a file system
_NAMES = 100  # the same in a store: directly below the place, because each is a request


class Standing(NamedTuple):
    """A dataset that exists. ``error`` says why it cannot be read; then the other facts are those known so far."""

    name: str
    place: str
    description: Description | None
    landed: Checkpoint
    error: str = ""


def landed_in(storage: Storage) -> Checkpoint:
    """Return the sum of the commit log of a dataset, read to its end as it is now. Raises OSError, FastwireError."""
    state = newest_checkpoint(storage)
    while entries := entries_behind(storage, state.number, _READ_AHEAD):
        for data in entries:
            name = storage.path(entry_name(state.number + 1))
            try:
                state.fold(LogEntry.decode(data, name))
            except ValueError as exc:
                raise DatasetDamagedError(f"{name} does not fit the log: {exc}") from exc
    return state


def standing_of(sink: SinkConfig, name: str) -> Standing | None:
    """Return the dataset of that name, None if there is none. ``sink`` is the one of all topics."""
    place = str(sink.path).replace(TOPIC, name)
    own = sink.model_copy(update={"path": parse_dataset_path(place)})
    description, landed = None, Checkpoint()
    try:
        storage = storage_at(place, bucket_of(own), patient=False)
        data = storage.read(DESCRIPTION)
        if data is None:
            return None
        description = read_description(data, storage.root)
        landed = landed_in(storage)
    except Exception as exc:
        return Standing(name, place, description, landed, str(exc))
    return Standing(name, place, description, landed)


def standings(sink: SinkConfig) -> list[Standing]:
    """Return all datasets of ``sink``, by name. Raises OSError, FastwireError if they cannot be listed."""
    text = str(sink.path)
    before = text[: text.index(TOPIC)]
    base = before.rpartition("/")[0]
    level = place_pattern(text[len(base) + 1 :].partition("/")[0])
    found = [match[1] for name in _names(sink, base) if (match := level.fullmatch(name))]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read: Callable[[str], Standing | None] = lambda name: standing_of(sink, name)  # noqa: E731
        return [each for each in pool.map(read, sorted(found)) if each is not None]


def datasets_in(path: str, medium: Bucket | None = None) -> list[str]:
    """Return the places of the datasets that lie in ``path``, one level below; [] if ``path`` is a dataset itself.

    ``medium`` is the bucket of a URL. Raises OSError, FastwireError.
    """
    storage = storage_at(path, medium, patient=False)
    if storage.exists(DESCRIPTION):
        return []
    names = medium.names("") if medium is not None else sorted(os.listdir(path)) if os.path.isdir(path) else []
    return [f"{path.rstrip('/')}/{name}" for name in names if storage.exists(f"{name}/{DESCRIPTION}")]


def dataset_around(path: str, medium: Bucket | None = None) -> str:
    """Return the place of a dataset that ``path`` lies in or that lies in ``path``, "" if none is seen.

    Above, all places are looked at; below, 10,000 folders, or 100 names of a store (``medium``), and none whose name is
    that of a value (``dt=…``). A place above that may not be read is taken for none. Raises OSError, FastwireError.
    """
    for place in _above(path):
        above = None if medium is None else open_bucket(place, medium.access)
        with suppress(OSError):  # access to a bucket often ends at a prefix
            if storage_at(place, above, patient=False).exists(DESCRIPTION):
                return place
    below = islice(_folders(path), _FOLDERS) if medium is None else medium.names("")[:_NAMES]
    storage = storage_at(path, medium, patient=False)
    return next((f"{path}/{name}" for name in below if storage.exists(f"{name}/{DESCRIPTION}")), "")


def _above(path: str) -> Iterator[str]:
    """Yield the places that ``path`` lies in, the nearest first; of a store up to its bucket."""
    scheme, separator, rest = path.rpartition("://")
    if not separator:
        yield from map(str, Path(os.path.realpath(path)).parents)
    while separator and "/" in rest:
        rest = rest.rpartition("/")[0]
        yield f"{scheme}://{rest}"


def _folders(path: str) -> Iterator[str]:
    """Yield the folders below ``path``, relative to it; those of a dataset's files are left out."""
    for folder, names, _ in os.walk(path):
        names[:] = [name for name in names if "=" not in name and not name.startswith("_")]
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), path)


def _names(sink: SinkConfig, base: str) -> list[str]:
    if isinstance(sink.path, StoreUrl):
        bucket = bucket_of(sink.model_copy(update={"path": StoreUrl(base)}))
        assert bucket is not None
        return bucket.names("")
    try:
        return os.listdir(Path(base or "/") if sink.path is not None and sink.path.is_absolute() else Path(base or "."))
    except FileNotFoundError:
        return []
