"""The base class of the tables of a configuration."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Table"]


class Table(BaseModel):
    """A frozen table that rejects unknown keys; its error messages never show values, which may be secrets.

    Validators are built when the first configuration is read, for the whole model at once. So defaults are made with
    ``model_construct``, which does not validate.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, hide_input_in_errors=True)
