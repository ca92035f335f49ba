"""The page for browsers at ``/`` of the daemon's HTTP address: one HTML document that shows ``/status``, live."""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@cache
def page() -> bytes:
    """Return the document, which names nothing outside itself but ``events``."""
    return (files(__package__) / "page.html").read_bytes()


@cache
def page_headers() -> dict[str, str]:
    """Return the headers of the document: a browser runs its own script, and connects to this server only."""
    sums = {kind.decode(): _checksum(text) for kind, text in _INLINE.findall(page())}
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; style-src '{sums['style']}'; script-src '{sums['script']}'; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-cache",
    }


def _checksum(text: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}"
