"""Entries that the hot loop leaves to others: encrypted ones, parts of chunked messages, compacted batches.

Each is completed here and put into the same open chunk by the scanner, before the next frame is looked at: so wire
order is kept. The order is decrypt, join, decompress, split (pulsar 9).
"""

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from google.protobuf.message import DecodeError

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.assembly import Assembly, Part, Torn
from fastwire.pulsar.cold import ColdEntry
from fastwire.pulsar.event import EntryRejected
from fastwire.pulsar.payload import split_payload, text_of

if TYPE_CHECKING:
    from fastwire.pulsar.encryption import Decryptor

__all__ = ["Completion", "Finisher", "OnFailure"]

OnFailure = Literal["fail", "discard", "consume"]

_SIZE = struct.Struct(">I")
_GONE = pb.SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
_HOLE = _SIZE.pack(len(_GONE)) + _GONE
# Headers of a record that is delivered as ciphertext: what somebody with the key needs to know.
_PREFIX = "pulsar."


class Finisher(Protocol):
    """What completion needs of ``scan.Scanner``."""

    def hold(self, cold: ColdEntry, /) -> None: ...
    def cover(self, cold: ColdEntry, /) -> None: ...
    def divert(self, cold: ColdEntry, /) -> None: ...
    def finish(
        self, cold: ColdEntry, metadata: bytes, payload: bytes | memoryview, /, *, whole: bool = False
    ) -> bool: ...
    def inflate(self, compression: int, payload: bytes | memoryview, size: int, /) -> bytes: ...


class Completion:
    """Completes the entries of all connections of one client.

    ``divert`` makes damaged entries dead letters; otherwise they are told and not landed. ``on_failure`` is for what
    no key of ``decryptor`` opens: "fail" tells it and lands nothing, "discard" lands the position alone, "consume"
    makes the ciphertext a record, undivided, with headers that say what it is.
    """

    def __init__(
        self,
        assembly: Assembly,
        *,
        divert: bool = True,
        decryptor: "Decryptor | None" = None,
        on_failure: OnFailure = "fail",
    ) -> None:
        self.assembly = assembly
        self.discarded = 0  # entries that could not be decrypted
        self._divert = divert
        self._decryptor = decryptor
        self._on_failure = on_failure

    def take(self, entry: ColdEntry, to: Finisher, hand_on: Callable[[], None]) -> Sequence[EntryRejected]:
        """Deal with ``entry``; what comes back was put aside, or has to be dealt with before anything else.

        ``hand_on`` takes the open chunk, when that has no room for the entry.
        """
        if entry.reason not in ("Encrypted", "Chunked", "CompactedIndexes"):
            return self._reject((entry,), to)
        try:
            return self._complete(entry, to, hand_on)
        except CorruptEntryError as exc:
            entry.refuse(exc.reason, exc.detail)
            return self._reject((entry,), to)

    def _complete(self, entry: ColdEntry, to: Finisher, hand_on: Callable[[], None]) -> Sequence[EntryRejected]:
        """The same for an entry that may be sound. Raises CorruptEntryError where it is not."""
        metadata, stored = split_payload(entry.payload)
        data: bytes | memoryview = stored
        if metadata.encryption_keys:
            if self._decryptor is None:
                # With it comes a package of 5 MiB, which those who never meet an encrypted entry need not have.
                from fastwire.pulsar.encryption import Decryptor

                self._decryptor = Decryptor({})
            try:
                data = self._decryptor.decrypt(metadata, stored)
            except CorruptEntryError as exc:
                return self._undecryptable(entry, metadata, stored, exc, to, hand_on)
        if metadata.num_chunks_from_msg > 1:
            return self._part(metadata, Part(entry, data), to, hand_on)
        if metadata.compacted_batch_indexes and metadata.HasField("num_messages_in_batch"):
            block = to.inflate(metadata.compression, data, metadata.uncompressed_size)
            data = _expand(block, metadata.num_messages_in_batch, metadata.compacted_batch_indexes)
            metadata.compression = pb.NONE
        _finish(entry, metadata, data, to, hand_on)
        return ()

    def give_up(self, torn: Iterable[Torn], to: Finisher) -> Sequence[EntryRejected]:
        """Put parts aside that will never be a message."""
        entries = []
        for each in torn:
            each.entry.refuse("Chunked", each.detail)
            entries.append(each.entry)
        return self._reject(entries, to)

    def _reject(self, entries: Iterable[ColdEntry], to: Finisher) -> Sequence[EntryRejected]:
        events = [EntryRejected(entry, diverted=self._divert) for entry in entries]
        if self._divert:
            for event in events:
                to.divert(event.entry)
        return events

    def _undecryptable(
        self,
        entry: ColdEntry,
        metadata: pb.MessageMetadata,
        stored: memoryview,
        why: CorruptEntryError,
        to: Finisher,
        hand_on: Callable[[], None],
    ) -> Sequence[EntryRejected]:
        entry.refuse(why.reason, why.detail)
        match self._on_failure:
            case "fail":
                return (EntryRejected(entry, diverted=False),)
            case "discard":
                self.discarded += 1
                to.cover(entry)
            case "consume":
                _finish(entry, _sealed(metadata), stored, to, hand_on, whole=True)
        return ()

    def _part(
        self, metadata: pb.MessageMetadata, part: Part, to: Finisher, hand_on: Callable[[], None]
    ) -> Sequence[EntryRejected]:
        verdict = self.assembly.add(metadata, part)
        if verdict.hold:
            to.hold(part.entry)
        torn = verdict.torn
        if verdict.complete:
            last = verdict.complete[-1].entry
            try:
                # First the row: it may need a new chunk, and its parts must be landed together with it.
                _finish(last, metadata, b"".join(each.data for each in verdict.complete), to, hand_on)
            except CorruptEntryError as exc:
                detail = f"{exc.reason}: {exc.detail}"
                torn = (*torn, *(Torn(each.entry, detail) for each in verdict.complete))
            else:
                for each in verdict.complete[:-1]:
                    to.cover(each.entry)
        for entry in verdict.surplus:
            to.cover(entry)
        return self.give_up(torn, to) if torn else ()


def _finish(
    entry: ColdEntry,
    metadata: pb.MessageMetadata,
    payload: bytes | memoryview,
    to: Finisher,
    hand_on: Callable[[], None],
    *,
    whole: bool = False,
) -> None:
    described = metadata.SerializePartialToString()  # what is missing in it is told as damage, by the scanner
    while not to.finish(entry, described, payload, whole=whole):
        hand_on()


def _expand(block: bytes, count: int, indexes: Iterable[int]) -> bytes:
    """A batch that compaction has thinned out, with every element in its old place (pulsar 10).

    Brokers either mark what is gone and leave it in, or list the indexes of what is left.
    """
    kept, elements = list(indexes), list(_elements(block, count))
    if len(elements) == count:
        return block
    if len(elements) != len(kept) or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < count:
        raise CorruptEntryError(
            "BatchDeSerializeError", f"{len(elements)} messages, {len(kept)} are listed as left of {count}"
        )
    places = dict(zip(kept, elements, strict=True))
    return b"".join(places.get(index, _HOLE) for index in range(count))


def _elements(block: bytes, most: int) -> Iterable[bytes]:
    at = 0
    for _ in range(most):
        if at == len(block):
            return
        try:
            head = at + 4 + _SIZE.unpack_from(block, at)[0]
            single = pb.SingleMessageMetadata.FromString(block[at + 4 : head])
        except (ValueError, DecodeError, struct.error) as exc:
            raise CorruptEntryError("BatchDeSerializeError", f"a message of a compacted batch: {exc}") from None
        end = head + single.payload_size
        if single.payload_size < 0 or end > len(block):
            raise CorruptEntryError("BatchDeSerializeError", "a message of a compacted batch ends beyond it")
        yield block[at:end]
        at = end


def _sealed(metadata: pb.MessageMetadata) -> pb.MessageMetadata:
    """What describes an encrypted entry as one message of bytes; all that it takes to open it is in its properties."""
    plain = pb.MessageMetadata()
    plain.CopyFrom(metadata)
    facts = {
        "encryption.param": base64.b64encode(metadata.encryption_param).decode(),
        "encryption.algo": text_of(metadata.encryption_algo),
        "compression": pb.CompressionType.Name(metadata.compression) if metadata.compression else "",
        "uncompressed.size": str(metadata.uncompressed_size) if metadata.compression else "",
        "batch.size": str(metadata.num_messages_in_batch) if metadata.HasField("num_messages_in_batch") else "",
        "chunk.uuid": text_of(metadata.uuid),
        "chunk.id": str(metadata.chunk_id) if metadata.num_chunks_from_msg > 1 else "",
        "chunk.count": str(metadata.num_chunks_from_msg) if metadata.num_chunks_from_msg > 1 else "",
        "chunk.total.size": str(metadata.total_chunk_msg_size) if metadata.num_chunks_from_msg > 1 else "",
    }
    for key in metadata.encryption_keys:
        plain.properties.add(
            key=f"{_PREFIX}encryption.key.{text_of(key.key)}", value=base64.b64encode(key.value).decode()
        )
    for name, value in facts.items():
        if value:
            plain.properties.add(key=_PREFIX + name, value=value)
    for field in ("compression", "uncompressed_size", "num_messages_in_batch", "null_value", "encryption_keys"):
        plain.ClearField(field)
    plain.DiscardUnknownFields()  # a codec that we do not know is among them
    return plain
