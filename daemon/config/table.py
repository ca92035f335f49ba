"""What all tables of a configuration have in common."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Table"]


class Table(BaseModel):
    """Frozen, with no keys but its own; a mistake never shows the value, which may be a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)
