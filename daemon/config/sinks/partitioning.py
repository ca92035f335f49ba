"""``sink.partition_by``: the folders of a dataset by time and by columns of decoded values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ..brokers.connection import Tell
from ..values.text import KeyPath, kind, nearest

if TYPE_CHECKING:
    from fastwire.decode.program import Step

_UNITS = ("none", "day", "hour")
_KEYS = ("column", "by")
_TAKEN = ("t", "p", "dt", "hh")
# Types by the Arrow C data interface whose values have one text each that readers of folder names understand.
_NAMEABLE = ("u", "b", "i", "l", "tdD")


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Folder levels of a dataset, below those of ``split``: first the time, then the columns."""

    unit: Literal["none", "day", "hour"] = "none"
    time: str = ""
    """Column of decoded values whose day or hour it is; "" is the timestamp of the record."""
    columns: tuple[str, ...] = ()
    """Columns of decoded values, outermost first."""

    @property
    def of_records(self) -> bool:
        """True if folders depend on the timestamp of the record."""
        return self.unit != "none" and not self.time

    @property
    def of_values(self) -> tuple[str, ...]:
        """All columns of decoded values that folders depend on."""
        return (*((self.time,) if self.time else ()), *self.columns)

    @property
    def level(self) -> str:
        """The level of the time, as ``dataset.level`` has it: none, day, hour, day(column), hour(column)."""
        return f"{self.unit}({self.time})" if self.time else self.unit

    def __str__(self) -> str:
        return ", ".join((self.level, *self.columns))

    @property
    def words(self) -> tuple[str, ...]:
        """The levels for people, outermost first."""
        time = f"{self.unit}{f' of {self.time}' if self.time else ''} (UTC)"
        return (*((time,) if self.unit != "none" else ()), *self.columns)


UNPARTITIONED = Partitioning()


def _parse(value: object) -> Partitioning:
    if isinstance(value, Partitioning):
        return value
    if isinstance(value, str) and value in _UNITS:
        return Partitioning(value)  # type: ignore[arg-type]
    if not isinstance(value, Mapping | list):
        shown = f'"{value}"{nearest(value, _UNITS)}' if isinstance(value, str) else kind(value)
        raise ValueError(f'must be "none", "day", "hour" or a column such as {{ column = "country" }}, not {shown}')
    levels = [_level(each) for each in ([value] if isinstance(value, Mapping) else value)]
    times = [(unit, column) for column, unit in levels if unit is not None]
    if len(times) > 1:
        raise ValueError('has more than one time: "by" is for one column')
    names = [column for column, unit in levels if unit is None]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f'"{name}" is repeated')
        if not (name.isascii() and name.replace("_", "a").isalnum() and name[0].isalpha()) or name in _TAKEN:
            raise ValueError(
                f'"{name}" cannot name a folder: letters, digits and _ only, a letter first, and not one of '
                + ", ".join(_TAKEN)
            )
    if not levels:
        raise ValueError('names no column: remove it, or set it to "none"')
    unit, time = times[0] if times else ("none", "")
    return Partitioning(unit, time, tuple(names))  # type: ignore[arg-type]


def _level(table: object) -> tuple[str, str | None]:
    """Return the column of one level, and the unit of its time."""
    if not isinstance(table, Mapping):
        raise ValueError(f'must have columns such as {{ column = "country" }}, not {kind(table)}')
    for key in table:
        if key not in _KEYS:
            raise ValueError(f'has an unknown key "{key}"{nearest(str(key), _KEYS)}: there are column and by')
    column, unit = table.get("column"), table.get("by")
    if not isinstance(column, str) or not column:
        raise ValueError('must have columns such as { column = "country" }: the key column is missing or no name')
    if unit is not None and unit not in ("day", "hour"):
        raise ValueError('by must be "day" or "hour"')
    return column, unit


_COLUMN: dict[str, Any] = {
    "type": "object",
    "properties": {"column": {"type": "string"}, "by": {"enum": ["day", "hour"]}},
    "required": ["column"],
    "additionalProperties": False,
}

PartitioningField = Annotated[
    Partitioning,
    PlainValidator(_parse),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(_UNITS)},
                _COLUMN,
                {"type": "array", "items": _COLUMN},
            ]
        }
    ),
]


def check_partitioning(
    path: KeyPath, value: object, program: "Sequence[Step] | None", tell: Tell, source: str = "schema"
) -> None:
    """Check the columns of ``partition_by`` against those of the ``source``, None if the values are not decoded."""
    try:
        wanted = _parse(value)
    except ValueError:
        return  # reported where it is read
    if not wanted.of_values:
        return
    if program is None:
        tell(path, "takes columns of decoded values or of a transform: add the table decode to this pipeline")
        return
    types = {step.name: step.arrow for step in program[program[0].first :][: program[0].children]}
    word = "field" if source == "schema" else "column"
    for name in wanted.of_values:
        if name not in types:
            tell(
                path,
                f'there is no {word} "{name}" in the {source}{nearest(name, types)}',
            )
        elif name == wanted.time and not (types[name].startswith("ts") or types[name] == "tdD"):
            tell(path, f'"{name}" is neither a timestamp nor a date, so it has no {wanted.unit}')
        elif name in wanted.columns and types[name].startswith("ts"):
            tell(path, f'"{name}" is a timestamp: add by = "day" or by = "hour"')
        elif name in wanted.columns and types[name] not in _NAMEABLE:
            tell(path, f'"{name}" cannot name folders: only texts, integers, booleans and dates can')
    if set(types) <= set(wanted.columns):
        tell(path, f"has every {word} of the {source}: none is left for the files")
