"""The parts of a dead letter's reason: a word for programs, and the column that could not be read."""

import re

_FIELD = re.compile(r" at byte \d+ of .*, in (?P<path>.+)")


def kind_of(reason: str) -> str:
    """Return the name of the reason, without its details."""
    return reason.split(" ", 1)[0].rstrip(":")


def field_of(reason: str) -> str:
    """Return the path of the column that could not be read, as ``BadRecord`` tells it; "" for the whole record."""
    found = _FIELD.search(reason)
    return "" if found is None else found["path"]
