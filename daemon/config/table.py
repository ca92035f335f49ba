"""The base class of the tables of a configuration."""

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A frozen table that rejects unknown keys; its error messages never show values, which may be secrets.

    Validators are built when the first configuration is read, for the whole model at once. So defaults are made with
    ``model_construct``, which does not validate.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, hide_input_in_errors=True)

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of keys, each with the name of the field."""

    @classmethod
    def known_keys(cls) -> list[str]:
        """Return the keys of the table as they are written in a file, aliases included."""
        return [field.alias or name for name, field in cls.model_fields.items()] + list(cls.aliases)


def table_in(annotation: Any) -> type[Table] | None:
    """Return the model that an annotation such as ``dict[str, Model]`` or ``Model | None`` is about."""
    found = (each for each in (annotation, *get_args(annotation)) if isinstance(each, type))
    return next((each for each in found if issubclass(each, Table)), None)
