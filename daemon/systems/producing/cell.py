"""Cells of JSON lines."""

from base64 import b64decode
from typing import Any


def cell_bytes(cell: Any) -> bytes:
    """Return the bytes of a binary cell, which is text, an object with base64, or null."""
    if cell is None:
        return b""
    return b64decode(cell["base64"]) if isinstance(cell, dict) else str(cell).encode()
