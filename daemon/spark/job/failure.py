"""Finds the cause of a failed query: Spark wraps Python exceptions in tracebacks of two languages."""

import re

__all__ = ["cause", "is_passing"]

_MOST = 2000
# Spark gives its Python processes ten seconds to start, and a busy machine may not.
_PASSING = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "CANNOT_OPEN_SOCKET",
)
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*): (.+)")


def cause(exc: BaseException) -> str:
    """Return type and message of the first Python exception, in any process, or of ``exc`` if there is none."""
    text = str(exc)
    _, trace, rest = text.partition("Traceback (most recent call last):\n")
    if trace:
        for line in rest.splitlines():
            if not line.startswith((" ", "\t")):
                if found := _RAISED.fullmatch(line):
                    return f"{found[1]}: {found[2]}"[:_MOST]
                break
    return f"{type(exc).__name__}: {text}"[:_MOST]


def is_passing(exc: BaseException) -> bool:
    """Return whether one of Spark's processes did not start, or died; a new attempt may succeed."""
    text = str(exc)
    return any(sign in text for sign in _PASSING)
