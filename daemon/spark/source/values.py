"""Parses texts of options; the messages of ValueError name the valid values."""

import json
import re
from collections.abc import Callable
from typing import Any

from ...config import parse_size
from ...config.values.text import nearest

__all__ = ["INT32", "INT64", "json_table", "milliseconds", "names", "one_of", "size", "switch", "text", "whole"]

# The largest numbers that protocols, Arrow and Spark take.
INT32 = (1 << 31) - 1
INT64 = (1 << 63) - 1

_NUMBER = re.compile(r"\s*-?[0-9]{1,19}\s*")  # whatever is longer is beyond INT64
_MOST_SHOWN = 40  # characters of a value in a message


def whole(lowest: int, highest: int = INT32) -> Callable[[str], int]:
    """Return a parser for whole numbers from ``lowest`` to ``highest``."""

    def parse(given: str) -> int:
        if not _NUMBER.fullmatch(given) or not lowest <= int(given) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}, not {_shown(given)}")
        return int(given)

    return parse


def _shown(given: str) -> str:
    return f'"{given}"' if len(given) <= _MOST_SHOWN else f'"{given[:_MOST_SHOWN]}…"'


def switch(given: str) -> bool:
    """Parse true or false, in upper or lower case."""
    if given.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return given.strip().lower() == "true"


def milliseconds(given: str) -> float:
    """Parse a number of milliseconds; return seconds."""
    return whole(0, INT64)(given) / 1000


def size(highest: int) -> Callable[[str], int]:
    """Return a parser for sizes up to ``highest`` bytes, as a number or with a unit."""

    def parse(given: str) -> int:
        found = int(given) if _NUMBER.fullmatch(given) else parse_size(given)
        if not 1 <= found <= highest:
            raise ValueError(f"must be a size from 1 to {highest} bytes, not {_shown(given)}")
        return found

    return parse


def one_of(*choices: str) -> Callable[[str], Any]:
    """Return a parser for one of ``choices``."""

    def parse(given: str) -> str:
        if given not in choices:
            raise ValueError(f"must be {' or '.join(choices)}{nearest(given, choices)}")
        return given

    return parse


def text(given: str) -> str:
    """Parse a text that is not empty."""
    if not given.strip():
        raise ValueError("is empty")
    return given.strip()


def names(given: str) -> tuple[str, ...]:
    """Parse a comma-separated list."""
    found = tuple(name.strip() for name in given.split(",") if name.strip())
    if not found:
        raise ValueError("is empty")
    return found


def json_table(given: str, example: str) -> dict[str, Any]:
    """Parse a JSON object that is not empty."""
    try:
        found = json.loads(given)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"must be JSON such as {example}")
    return found
