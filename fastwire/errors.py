"""The exception tree. :class:`ProtocolError` is raised for bytes of a peer only; misuse of the API raises ValueError or
TypeError.
"""

from collections.abc import Iterator

from .reason import Reason


class FastwireError(Exception):
    """Base of all exceptions that fastwire defines."""


class ProtocolError(FastwireError):
    """The peer sent bytes that break the protocol's framing; the connection must be closed.

    ``field`` names what was read, ``offset`` is its place in bytes from the start of the frame, ``needed`` and
    ``present`` are byte counts (-1 where they do not apply).
    """

    def __init__(self, field: str, offset: int = -1, needed: int = -1, present: int = -1, detail: str = "") -> None:
        self.field = field
        self.offset = offset
        self.needed = needed
        self.present = present
        self.detail = detail
        text = field
        if offset >= 0:
            text += f" at byte {offset}"
        if detail:
            text += f": {detail}"
        if needed >= 0:
            text += f": needs {needed} bytes, {present} present"
        super().__init__(text)


class CorruptEntryError(FastwireError):
    """One entry inside intact framing cannot be decoded. The entry becomes a dead letter; the connection stays open."""

    def __init__(self, reason: Reason, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


class UnsupportedError(FastwireError):
    """The peer is intact but requires a feature that this version does not support."""


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, then what has caused it, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__
