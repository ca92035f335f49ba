"""Access of commands to a dataset in an object store, and to the catalog of its table."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config
    from ..dataset.storage.bucket import Bucket


def bucket_at(path: str, config: Path | None) -> "Bucket | None":
    """Return the bucket of the dataset at ``path``; None if it is a folder.

    The access to the store is that of the pipeline or the job in the file ``config`` that writes there, and otherwise
    that of the environment. Raises ConfigError.
    """
    from ..config import ConfigError, Problem, SinkConfig, SparkOutput
    from ..config.sinks.store import StoreUrl, parse_dataset_path
    from ..dataset.place import bucket_of

    try:
        url = parse_dataset_path(path)
    except ValueError as exc:
        raise ConfigError([Problem("", "PATH", str(exc))]) from None
    if not isinstance(url, StoreUrl):
        if Path(path).is_file():
            raise ConfigError([Problem("", "PATH", f"{path} is a file: give the folder of a dataset, as in sink.path")])
        return None
    if config is None:
        return bucket_of(SinkConfig.model_construct(type="parquet", path=url, store=None))
    loaded = _read(config)
    sinks: list[SinkConfig | SparkOutput] = [each.sink for each in loaded.pipelines.values()]
    for sink in (*sinks, *(each.output for each in loaded.spark.values())):
        if _writes_to(sink.path, url):
            return bucket_of(sink.model_copy(update={"path": url}))
    raise ConfigError([Problem(str(config), "", f"no pipeline and no job writes to {url}")])


def catalog_at(path: str, config: Path | None) -> "dict[str, str] | None":
    """Return the settings of the catalog that has the table of the dataset at ``path``, with its secrets.

    They are those of the pipeline or the job in the file ``config`` that writes there; None without one. Raises
    ConfigError.
    """
    from ..config.sinks.catalog import catalog_of
    from ..config.sinks.store import parse_dataset_path

    if config is None:
        return None
    place = parse_dataset_path(path)
    loaded = _read(config)
    found = [(each.sink.path, catalog_of(each.sink)) for each in loaded.pipelines.values()]
    found += [(each.output.path, catalog_of(each.output)) for each in loaded.spark.values()]
    return next((catalog for written, catalog in found if _writes_to(written, place)), None)


def datasets_at(path: str, config: Path | None) -> "list[tuple[str, Bucket | None]]":
    """Return the dataset at ``path``, or the datasets in it if it is a root of many, each with its bucket.

    Raises ConfigError, FastwireError, OSError.
    """
    from ..dataset.roots import datasets_in

    bucket = bucket_at(path, config)
    try:
        found = datasets_in(path, bucket)
    except OSError as exc:
        if bucket is None or config is not None:
            raise
        raise OSError(
            f"{path}: {exc}. With --config FILE the access is that of the pipeline that writes there"
        ) from exc
    return [(place, bucket_at(place, config)) for place in found] or [(path, bucket)]


def _read(config: Path) -> "Config":
    """Read the configuration; once for all datasets of a command. Raises ConfigError."""
    from ..config import load_config

    try:
        return _parsed(config, config.read_bytes())
    except OSError:
        return load_config(config)  # which says what is wrong with the file


@lru_cache(maxsize=1)
def _parsed(config: Path, content: bytes) -> "Config":
    """Parse the file, whose ``content`` only tells it from another one."""
    from ..config import load_config

    return load_config(config)


def _writes_to(written: object, place: object) -> bool:
    """Return True if a sink whose path is ``written`` writes to ``place``: a dataset of it, or the root of them."""
    from ..config.sinks.topicplaces import place_pattern
    from ..config.values.fields import TOPIC

    text = str(written)
    if TOPIC not in text:
        return written == place
    root = text[: text.index(TOPIC)].rpartition("/")[0]
    return str(place) == root or place_pattern(text).fullmatch(str(place)) is not None
