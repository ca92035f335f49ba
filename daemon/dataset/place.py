"""The choice of the storage for the place of a dataset, and of the way in which its files become visible."""

import os
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from ..config import ConfigError, Problem, SinkConfig, SparkOutput
from ..config.sinks.store import StoreUrl
from .commitlog.checkpoint import Checkpoint
from .description import DatasetOptions, Description
from .identity import Identity
from .publication import Publication
from .storage.base import Storage
from .storage.bucket import Bucket, open_bucket
from .storage.disk import Disk
from .storage.folder import FolderStorage
from .storage.patience import Impatience, Patience
from .storage.store import ObjectStorage
from .tableformat import TITLES, PublishedTable
from .tableschema import data_columns, partition_columns, unfit

# The package for each format of tables, for catalogs and their settings, and the extra that brings it.
_NEEDED = {
    "delta": ("deltalake", "lake"),
    "iceberg": ("pyiceberg", "iceberg"),
    "glue": ("boto3", "glue"),
    "sigv4": ("boto3", "glue"),
}


def bucket_of(sink: SinkConfig | SparkOutput) -> Bucket | None:
    """Return the bucket that holds the dataset of ``sink``; None if that is a folder. Raises ConfigError."""
    if not isinstance(sink.path, StoreUrl):
        return None
    name = "output" if isinstance(sink, SparkOutput) else "sink"
    try:
        return open_bucket(sink.path, {} if sink.store is None else sink.store.settings())
    except ModuleNotFoundError as exc:
        package = str(exc.name).partition(".")[0]
        key, extra = ("store.profile", "aws") if package == "botocore" else ("path", "lake")
        why = f"needs the package {package}: pip install 'fastwire-daemon[{extra}]'"
        raise ConfigError([Problem("", f"{name}.{key}", why)]) from None
    except ValueError as exc:
        raise ConfigError([Problem("", f"{name}.store", str(exc))]) from None


def storage_at(
    path: str | os.PathLike[str],
    medium: Disk | Bucket | None = None,
    on_full: Callable[[str | None], None] = lambda message: None,
    stop: threading.Event | None = None,
    *,
    patient: bool = True,
) -> Storage:
    """Return the storage at ``path`` on ``medium``, by default the file system of this machine.

    A bucket has its own URL, and ``path`` is ignored. ``on_full`` and ``stop`` are those of :class:`Patience`; without
    ``patient`` nothing waits.
    """
    medium = medium or Disk()
    patience = Patience(medium, on_full, stop) if patient else Impatience(medium)
    if isinstance(medium, Bucket):
        return ObjectStorage(medium, patience)
    return FolderStorage(os.fspath(path), medium, patience)


def publication_of(
    storage: Storage,
    description: Description,
    state: Checkpoint,
    identity: Identity,
    reached: Callable[[str], None],
    catalog: Mapping[str, str] | None = None,
    *,
    hasty: bool = False,
) -> Publication:
    """Return the publication of a dataset: by names, or in its table. ``state`` is the checkpoint that was read.

    With ``hasty`` commits do not wait for a catalog that is slow.
    """
    if not description.table:
        return Publication(storage, description.extension, reached)
    from .tables.publication import TablePublication

    table = table_of(storage, description, catalog, hasty=hasty)
    return TablePublication(storage, description, table, state, identity, reached)


def table_of(
    storage: Storage, description: Description, catalog: Mapping[str, str] | None = None, *, hasty: bool = False
) -> PublishedTable:
    """Return the table in which a dataset is published; ``catalog`` is by default that of its creation."""
    return table_in(storage, description.table, description.id, catalog or description.catalog, hasty=hasty)


def table_in(
    storage: Storage, format: str, owner: str, catalog: Mapping[str, str], *, hasty: bool = False
) -> PublishedTable:
    """Return the table in ``format`` of the dataset whose id is ``owner``; "": of one that does not exist yet."""
    if format == "iceberg":
        from .tables.iceberg import IcebergTable

        return IcebergTable(storage, owner, catalog, hasty=hasty)
    from .tables.delta import DeltaLog  # its library takes 60 MiB

    return DeltaLog(storage, owner)


def table_refusal(options: DatasetOptions) -> str:
    """Return why the table of ``options`` cannot have their columns, or what must be installed for it; "" if it can.

    Without a table it is "", too.
    """
    if not options.table:
        return ""
    levels = partition_columns(options.split, options.partition_by, options.level_types)
    if why := unfit((*data_columns(options.system, options.columns, options.types), *levels)):
        return f"a table of {TITLES[options.table]} cannot have these columns: {why}"
    for name in (options.table, options.catalog.get("type", ""), *options.catalog):
        package, extra = _NEEDED.get(name, ("", ""))
        if package and find_spec(package) is None:
            return f"needs the package {package}: pip install 'fastwire-daemon[{extra}]'"
    return ""
