"""Texts of options to values; ValueError says what would be right."""

import json
from collections.abc import Callable
from typing import Any

from ..config import parse_size
from ..config.text import nearest

__all__ = ["json_table", "milliseconds", "names", "one_of", "size", "switch", "text", "whole"]


def whole(lowest: int) -> Callable[[str], int]:
    """A number of at least ``lowest``."""

    def parse(given: str) -> int:
        if not given.strip().isdecimal() or int(given) < lowest:
            raise ValueError(f"must be a whole number of at least {lowest}")
        return int(given)

    return parse


def switch(given: str) -> bool:
    """True or false, in any case."""
    if given.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return given.strip().lower() == "true"


def milliseconds(given: str) -> float:
    """A time, in seconds."""
    return whole(0)(given) / 1000


def size(given: str) -> int:
    """Bytes, as a number or with a unit."""
    return whole(1)(given) if given.strip().isdecimal() else parse_size(given)


def one_of(*choices: str) -> Callable[[str], Any]:
    """Just one of these."""

    def parse(given: str) -> str:
        if given not in choices:
            raise ValueError(f"must be {' or '.join(choices)}{nearest(given, choices)}")
        return given

    return parse


def text(given: str) -> str:
    """Anything but nothing."""
    if not given.strip():
        raise ValueError("is empty")
    return given.strip()


def names(given: str) -> tuple[str, ...]:
    """A list with commas."""
    found = tuple(name.strip() for name in given.split(",") if name.strip())
    if not found:
        raise ValueError("is empty")
    return found


def json_table(given: str, example: str) -> dict[str, Any]:
    """A JSON object that holds something."""
    try:
        found = json.loads(given)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"must be JSON such as {example}")
    return found
