"""The exception tree. Only bytes from a peer raise :class:`ProtocolError`; local misuse is ValueError or TypeError."""

__all__ = ["CorruptEntryError", "FastwireError", "ProtocolError", "UnsupportedError"]


class FastwireError(Exception):
    """Base of everything that fastwire raises on purpose."""


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
    """One entry inside sound framing cannot be decoded: it is diverted, the connection goes on.

    ``reason`` is the name that the system gives to this kind of damage (Pulsar: a ValidationError).
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


class UnsupportedError(FastwireError):
    """The peer is sound but needs something that this version does not speak."""
