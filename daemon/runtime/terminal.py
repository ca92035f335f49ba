"""Text of others (brokers, registries, producers, names of files) made harmless for a terminal."""

import re
import unicodedata

# Of JSON only these are left unescaped: the second half of the control characters, those that turn the direction of
# text, and those that end a line for some readers.
_ACTING_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return ``text`` as one line without effects: control and format characters become escapes such as ``\x1b``.

    These would move the cursor, change the terminal, forge a line of a log or show text in another order.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or unicodedata.category(char) == "Zs" else repr(char)[1:-1] for char in text
    )


def printable_json(text: bytes) -> bytes:
    r"""Return JSON in UTF-8 that means the same, without characters that act on a terminal (``\u009b``)."""
    if text.isascii() and b"\x7f" not in text:
        return text
    return _ACTING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text.decode(errors="surrogateescape")).encode(
        errors="surrogateescape"
    )
