"""Why a query has ended, in one line: Spark wraps what Python has raised in traces of two languages."""

import re

__all__ = ["cause"]

_MOST = 2000
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*): (.+)")


def cause(exc: BaseException) -> str:
    """Type and message of what was raised first, in whichever process, and of ``exc`` itself if that was not Python."""
    text = str(exc)
    _, trace, rest = text.partition("Traceback (most recent call last):\n")
    if trace:
        for line in rest.splitlines():
            if not line.startswith((" ", "\t")):
                if found := _RAISED.fullmatch(line):
                    return f"{found[1]}: {found[2]}"[:_MOST]
                break
    return f"{type(exc).__name__}: {text}"[:_MOST]
