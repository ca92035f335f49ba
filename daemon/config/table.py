"""What all tables of a configuration have in common."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Table"]


class Table(BaseModel):
    """Frozen, with no keys but its own; a mistake never shows the value, which may be a secret.

    What checks a table is made when the first one is read, as part of the whole and not for each table by itself: so
    defaults are made by ``model_construct``, which checks nothing.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, hide_input_in_errors=True)
