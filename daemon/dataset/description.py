"""dataset.json: what is fixed when a dataset is created, and how a configuration that differs is refused."""

import re
from dataclasses import dataclass
from typing import Any

import orjson

from ..errors import DatasetDamagedError, DatasetMismatchError
from .level import PARTITION_BY, SPLITS, level_keys

__all__ = ["DESCRIPTION", "FORMAT", "DatasetOptions", "Description", "read_description"]

DESCRIPTION = "_fastwire/dataset.json"
FORMAT = 1

_WORDS = {
    "system": "the system",
    "extension": "the file format",
    "split": "split",
    "partition_by": "partition_by",
    "levels": "the partition columns",
    "columns": "the columns",
}
_LEVEL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions:
    """What a writer wants of a dataset.

    ``system``, ``columns``, ``split``, ``partition_by``, ``levels`` and ``extension`` are fixed at creation and must be
    the same ever after. ``levels`` are columns of the rows that folders are made from, below those of ``split`` and
    ``partition_by``; files do not hold them. ``cluster`` is kept from the creation whatever it is later: logs are named
    by the writer's ``cluster``. ``shared`` says how this writer's source delivers (Shared, Key_Shared: in any
    order); it may change.
    """

    system: str
    cluster: str
    columns: tuple[str, ...]
    split: str = "none"
    partition_by: str = "none"
    levels: tuple[str, ...] = ()
    extension: str = "parquet"
    shared: bool = False

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split is {self.split!r}; it can be {', '.join(SPLITS)}")
        if self.partition_by not in PARTITION_BY:
            raise ValueError(f"partition_by is {self.partition_by!r}; it can be {', '.join(PARTITION_BY)}")
        if not self.extension or "/" in self.extension or self.extension.startswith("."):
            raise ValueError(f"{self.extension!r} cannot end a file's name")
        for level in self.levels:
            if not _LEVEL.fullmatch(level):
                raise ValueError(f"{level!r} cannot name a folder level: letters, digits and _ only, a letter first")

    @property
    def level_keys(self) -> tuple[str, ...]:
        """All folder levels, from the outside in."""
        return (*level_keys(self.split, self.partition_by), *self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The content of dataset.json."""

    id: str
    system: str
    cluster: str
    columns: tuple[str, ...]
    split: str
    partition_by: str
    extension: str
    created: str
    levels: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: DatasetOptions, *, id: str, created: str) -> "Description":
        """The description of a dataset that is created with ``options``."""
        return cls(
            id=id,
            system=options.system,
            cluster=options.cluster,
            columns=options.columns,
            split=options.split,
            partition_by=options.partition_by,
            levels=options.levels,
            extension=options.extension,
            created=created,
        )

    def encode(self) -> bytes:
        """As dataset.json holds it."""
        value = {name: getattr(self, name) for name in self.__slots__}
        if not self.levels:
            del value["levels"]
        return orjson.dumps({"format": FORMAT, **value}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def check(self, options: DatasetOptions, root: str) -> None:
        """Raise DatasetMismatchError, with all differences, unless ``options`` are those of the creation."""
        differences = []
        for name, word in _WORDS.items():
            held, wanted = getattr(self, name), getattr(options, name)
            if held != wanted:
                differences.append(f"{word} of the dataset: {_show(held)}; configured: {_show(wanted)}")
        if differences:
            raise DatasetMismatchError(
                f"the dataset at {root} was created with other settings, and they never change. "
                + ". ".join(differences)
                + ". Use a new path"
            )


def read_description(data: bytes, root: str) -> Description:
    """Decode dataset.json. Raises DatasetDamagedError, or DatasetMismatchError for one of a later format."""
    try:
        value: Any = orjson.loads(data)
        if value["format"] != FORMAT:
            raise DatasetMismatchError(
                f"the dataset at {root} has format {value['format']!r}; this version of fastwire knows {FORMAT}"
            )
        names = [name for name in Description.__slots__ if name not in ("columns", "levels")]
        texts = {name: value[name] for name in names}
        columns, levels = value["columns"], value.get("levels", [])
        if not all(isinstance(text, str) for text in (*texts.values(), *columns, *levels)):
            raise TypeError("all values but the format are text")
        if texts["split"] not in SPLITS or texts["partition_by"] not in PARTITION_BY:
            raise ValueError("unknown levels")
        return Description(columns=tuple(columns), levels=tuple(levels), **texts)
    except (ValueError, KeyError, TypeError) as exc:
        raise DatasetDamagedError(f"{root}/{DESCRIPTION} is damaged: {exc}") from exc


def _show(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"
