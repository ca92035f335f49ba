"""Completion of entries that the hot loop does not decode: encrypted entries, chunks, compacted batches.

Each entry is completed here, and the scanner adds it to the open chunk before it reads the next frame. This keeps wire
order. The steps are decrypt, join, decompress, split (spec: pulsar 9).
"""

import base64
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from google.protobuf.message import DecodeError

from fastwire.errors import CorruptEntryError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import encode_payload, split_payload, text_of
from fastwire.pulsar.protocol.event import EntryRejected
from fastwire.pulsar.reading.assembly import Assembly, Part, Torn
from fastwire.pulsar.reading.cold import UNDECODED, ColdEntry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.reason import Reason

if TYPE_CHECKING:
    from fastwire.pulsar.reading.encryption import Decryptor

OnFailure = Literal["fail", "discard", "consume"]

_SIZE = struct.Struct(">I")
_GONE = pb.SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
_HOLE = _SIZE.pack(len(_GONE)) + _GONE
# Prefix of the properties of a record that is delivered as ciphertext; they describe how to decrypt it.
_PREFIX = "pulsar."


class Completion:
    """Completes the entries of all connections of one client.

    If ``keeps_corrupt`` is true, damaged entries become dead letters; otherwise they are only reported and do not land.
    ``on_failure`` applies to entries that no key of ``decryptor`` decrypts: "fail" reports the entry and lands nothing,
    "discard" lands the position without a row, "consume" makes the whole ciphertext one record with properties that
    describe it. ``on_taken`` is called with the position of each entry before it is completed, ``on_whole`` with the
    chunks of each completed message, in order; its row is at the last one.

    Entries that were redelivered too often become dead letters (``Reason.REDELIVERED``): encrypted entries unchanged, a
    chunked message as one entry. The payload of an encrypted chunked message is decrypted then; its metadata keeps the
    encryption keys, without the encryption parameter.
    """

    def __init__(
        self,
        assembly: Assembly,
        *,
        keeps_corrupt: bool = True,
        decryptor: "Decryptor | None" = None,
        on_failure: OnFailure = "fail",
    ) -> None:
        self.assembly = assembly
        self.discarded = 0  # entries that could not be decrypted
        self.on_taken: Callable[[Position], None] | None = None
        self.on_whole: Callable[[Sequence[ColdEntry]], None] | None = None
        self._keeps_corrupt = keeps_corrupt
        self._decryptor = decryptor
        self._on_failure = on_failure

    def take(self, entry: ColdEntry, to: Scanner, hand_on: Callable[[], None]) -> Sequence[EntryRejected]:
        """Process ``entry``; return events for entries that became dead letters, or that the caller must handle first.

        ``hand_on`` takes the open chunk if it has no room for the entry.
        """
        if self.on_taken is not None:
            self.on_taken(entry.position)
        if entry.reason is Reason.FRAME:
            return (EntryRejected(entry, is_dead_letter=False),)  # there are no bytes to keep
        if entry.reason not in UNDECODED:
            return self._reject((entry,), to)
        try:
            return self._complete(entry, to, hand_on)
        except CorruptEntryError as exc:
            entry.refuse(exc.reason, exc.detail)
            return self._reject((entry,), to)

    def _complete(self, entry: ColdEntry, to: Scanner, hand_on: Callable[[], None]) -> Sequence[EntryRejected]:
        """Process an entry that may be intact. Raises CorruptEntryError if it is damaged."""
        metadata, stored = split_payload(entry.payload)
        data: bytes | memoryview = stored
        if metadata.encryption_keys:
            if self._decryptor is None:
                # A late import: it loads 5 MiB that most processes never need.
                from fastwire.pulsar.reading.encryption import Decryptor

                self._decryptor = Decryptor({})
            try:
                data = self._decryptor.decrypt(metadata, stored)
            except CorruptEntryError as exc:
                return self._undecryptable(entry, metadata, stored, exc, to, hand_on)
        if metadata.num_chunks_from_msg > 1:
            return self._part(metadata, Part(entry, data), to, hand_on)
        if entry.too_often:
            _keep_redelivered(entry, to)
            return ()
        if metadata.compacted_batch_indexes and metadata.HasField("num_messages_in_batch"):
            block = to.inflate(metadata.compression, data, metadata.uncompressed_size)
            data = _expand(block, metadata.num_messages_in_batch, metadata.compacted_batch_indexes)
            metadata.compression = pb.NONE
        _finish(entry, metadata, data, to, hand_on)
        return ()

    def give_up(self, torn: Iterable[Torn], to: Scanner) -> Sequence[EntryRejected]:
        """Reject the chunks of messages that can no longer be completed."""
        entries = []
        for each in torn:
            each.entry.refuse(Reason.CHUNKED, each.detail)
            entries.append(each.entry)
        return self._reject(entries, to)

    def _reject(self, entries: Iterable[ColdEntry], to: Scanner) -> Sequence[EntryRejected]:
        events = [EntryRejected(entry, is_dead_letter=self._keeps_corrupt) for entry in entries]
        if self._keeps_corrupt:
            for event in events:
                to.keep_dead_letter(event.entry)
        return events

    def _undecryptable(
        self,
        entry: ColdEntry,
        metadata: pb.MessageMetadata,
        stored: memoryview,
        why: CorruptEntryError,
        to: Scanner,
        hand_on: Callable[[], None],
    ) -> Sequence[EntryRejected]:
        entry.refuse(why.reason, why.detail)
        match self._on_failure:
            case "fail":
                return (EntryRejected(entry, is_dead_letter=False),)
            case "discard":
                self.discarded += 1
                to.cover(entry)
            case "consume" if entry.too_often:
                _keep_redelivered(entry, to)
            case "consume":
                _finish(entry, sealed(metadata), stored, to, hand_on, whole=True)
        return ()

    def _part(
        self, metadata: pb.MessageMetadata, part: Part, to: Scanner, hand_on: Callable[[], None]
    ) -> Sequence[EntryRejected]:
        verdict = self.assembly.add(metadata, part)
        if verdict.hold:
            to.hold(part.entry)
        torn = verdict.torn
        if verdict.complete:
            last = verdict.complete[-1].entry
            try:
                payload = b"".join(each.data for each in verdict.complete)
                if all(each.entry.too_often for each in verdict.complete):
                    _keep_redelivered(last, to, encode_payload(_joined(metadata), payload, checksum=False))
                else:
                    # The row comes first: it may open a new chunk, and its parts must land together with it.
                    _finish(last, metadata, payload, to, hand_on)
            except CorruptEntryError as exc:
                detail = f"{exc.reason}: {exc.detail}"
                torn = (*torn, *(Torn(each.entry, detail) for each in verdict.complete))
            else:
                for each in verdict.complete[:-1]:
                    to.cover(each.entry)
                if self.on_whole is not None:
                    self.on_whole([each.entry for each in verdict.complete])
        for entry in verdict.surplus:
            to.cover(entry)
        return self.give_up(torn, to) if torn else ()


def _finish(
    entry: ColdEntry,
    metadata: pb.MessageMetadata,
    payload: bytes | memoryview,
    to: Scanner,
    hand_on: Callable[[], None],
    *,
    whole: bool = False,
) -> None:
    described = metadata.SerializePartialToString()  # the scanner reports missing required fields as damage
    while not to.finish(entry, described, payload, whole=whole):
        hand_on()


def _keep_redelivered(entry: ColdEntry, to: Scanner, payload: bytes | None = None) -> None:
    entry.refuse(Reason.REDELIVERED, f"delivered again {entry.redelivery_count} times", payload)
    to.keep_dead_letter(entry)


def _joined(metadata: pb.MessageMetadata) -> pb.MessageMetadata:
    """Return metadata that describes a chunked message as one entry with a decrypted payload."""
    joined = pb.MessageMetadata()
    joined.CopyFrom(metadata)
    for field in ("uuid", "num_chunks_from_msg", "total_chunk_msg_size", "chunk_id", "encryption_param"):
        joined.ClearField(field)
    return joined


def _expand(block: bytes, count: int, indexes: Iterable[int]) -> bytes:
    """Return a compacted batch with every element at its original index (spec: pulsar 10).

    Brokers either mark removed elements and keep them, or list the indexes of the remaining ones.
    """
    kept, elements = list(indexes), list(_elements(block, count))
    if len(elements) == count:
        return block
    if len(elements) != len(kept) or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < count:
        raise CorruptEntryError(Reason.BATCH, f"{len(elements)} messages, {len(kept)} are listed as left of {count}")
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
            raise CorruptEntryError(Reason.BATCH, f"a message of a compacted batch: {exc}") from None
        end = head + single.payload_size
        if single.payload_size < 0 or end > len(block):
            raise CorruptEntryError(Reason.BATCH, "a message of a compacted batch ends beyond it")
        yield block[at:end]
        at = end


def sealed(metadata: pb.MessageMetadata) -> pb.MessageMetadata:
    """Return metadata that describes an encrypted entry as one message of bytes; properties tell how to decrypt it."""
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
    plain.DiscardUnknownFields()  # an unknown codec is among them
    return plain
