"""Finds the cause of a failed query: Spark wraps Python exceptions in tracebacks of two languages."""

import re

_MOST = 2000
OTHER_ROWS = "other rows than when its keys were read"
# Spark gives its Python processes ten seconds to start, and a busy machine may not.
_PASSING = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "CANNOT_OPEN_SOCKET",
    # Spark's own regular expressions, in the frames of a Java that had no time to compile them: a warm one does it.
    "java.lang.StackOverflowError",
    OTHER_ROWS,
)
# What follows the reason in the texts of Spark's exceptions.
_BEHIND = re.compile(r"\n(?:\s+at |\s*===|\s*Driver stacktrace|\s*JVM stacktrace).*", re.DOTALL)
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*): (.+)")


def cause(exc: BaseException) -> str:
    """Return type and message, on one line, of the first Python exception in any process.

    Without one they are those of ``exc``, without plans and the frames of Java.
    """
    text = str(exc)
    _, trace, rest = text.partition("Traceback (most recent call last):\n")
    if trace:
        for line in rest.splitlines():
            if not line.startswith((" ", "\t")):
                if found := _RAISED.fullmatch(line):
                    return f"{found[1]}: {found[2]}"[:_MOST]
                break
    return f"{type(exc).__name__}: {' '.join(_BEHIND.sub('', text).split())}"[:_MOST]


def details(exc: BaseException) -> str:
    """Return what Spark says beside the cause; "" if Python has raised the exception in the first place."""
    text = str(exc)
    return "" if "Traceback (most recent call last):" in text or not _BEHIND.search(text) else text


def is_passing(exc: BaseException) -> bool:
    """Return whether one of Spark's processes did not start, died, or had no stack left; a new attempt may succeed."""
    text = str(exc)
    return any(sign in text for sign in _PASSING)
