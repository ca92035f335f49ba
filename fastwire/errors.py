"""The exception tree. :class:`ProtocolError` is raised for bytes of a peer only; misuse of the API raises ValueError or
TypeError.
"""

from enum import StrEnum

__all__ = ["CorruptEntryError", "Damage", "FastwireError", "ProtocolError", "UnsupportedError"]


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


class Damage(StrEnum):
    """The kind of damage of an entry or batch that cannot be decoded.

    The values are stable names for programs; where Pulsar has a ValidationError for it, its name (spec: pulsar 13.4).
    """

    CHECKSUM = "ChecksumMismatch"  # no byte after the checksum can be trusted
    METADATA = "MetadataError"  # the entry's metadata (Pulsar: MessageMetadata) is unreadable or inconsistent
    DECRYPTION = "DecryptionError"
    SIZE = "UncompressedSizeCorruption"
    DECOMPRESSION = "DecompressionError"
    BATCH = "BatchDeSerializeError"  # Pulsar: the messages inside
    MESSAGE = "CorruptMessage"  # Kafka: a batch, its checksum, or the messages inside
    TOO_LARGE = "TooLarge"  # its decoded size exceeds the memory limit of one entry; it may be intact
    FRAME = "FrameTooLarge"  # it exceeds the memory limit as received: its bytes are passed over, and none are kept
    # Pulsar: the entry is intact, but the hot loop does not decode it, or it was redelivered too often.
    ENCRYPTED = "Encrypted"
    CHUNKED = "Chunked"
    COMPACTED = "CompactedIndexes"
    REDELIVERED = "RedeliveredTooOften"


class CorruptEntryError(FastwireError):
    """One entry inside intact framing cannot be decoded. The entry becomes a dead letter; the connection stays open."""

    def __init__(self, reason: Damage, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}")


class UnsupportedError(FastwireError):
    """The peer is intact but requires a feature that this version does not support."""
