"""Messages as the official client reads them: the independent witness for what was sent."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pulsar

from tests.brokers.admin import partition_names
from tests.real.matrix import SentRecord

RECEIVE_LIMIT = 10_000  # milliseconds


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as the official client delivers it."""

    value: bytes | None
    key: str | None  # None: no text, and the client offers nothing else
    ordering_key: str | None
    properties: dict[str, str]
    event_time: int
    publish_time: int
    producer: str
    schema_version: str  # one character a byte; empty for none


Identity = tuple[str, int, int, int, int]


def read_topic(client: pulsar.Client, topic: str, partitions: int = 0) -> dict[Identity, Seen]:
    """Every message of a topic, by its identity, without moving any subscription."""
    found: dict[Identity, Seen] = {}
    for name in partition_names(topic, partitions):
        partition = int(name.rpartition("-")[2]) if partitions else -1
        reader = client.create_reader(name, pulsar.MessageId.earliest, receiver_queue_size=200)
        while reader.has_message_available():
            message = reader.read_next(RECEIVE_LIMIT)
            place = message.message_id()
            identity = (topic, partition, place.ledger_id(), place.entry_id(), place.batch_index())
            assert identity not in found, identity
            found[identity] = Seen(
                value=None if message.has_null_value() else message.data(),
                key=_text(message.partition_key),
                ordering_key=_text(message.ordering_key),
                properties=message.properties(),
                event_time=message.event_timestamp(),
                publish_time=message.publish_timestamp(),
                producer=message.producer_name(),
                schema_version=message.schema_version(),
            )
        reader.close()
    return found


def _text(read: Callable[[], str]) -> str | None:
    try:
        return read()
    except UnicodeDecodeError:
        return None


def confirmed(sent: list[SentRecord], seen: dict[Identity, Seen]) -> list[SentRecord]:
    """``sent`` with publish times filled in; fails unless the witness has seen exactly these messages.

    What the Python client cannot tell apart (an empty key and none, repeated properties, keys that are no text) it is
    not asked about. And it discards as corrupt what it has stored itself: an empty or null value that was compressed
    with zlib outside a batch. Those records keep an unknown publish time.
    """
    assert set(seen) <= {record.identity for record in sent}
    complete = []
    for record in sent:
        if record.identity not in seen:
            assert not record.value and record.case in ("single zlib", "raw"), record
            complete.append(record)
            continue
        witness = seen[record.identity]
        assert witness.value == record.value, record.case
        assert witness.event_time == (record.event_time or 0), record.case
        assert witness.producer == record.producer
        assert witness.schema_version.encode("latin-1") == (record.schema_version or b""), record.case
        if record.case != "raw":
            assert witness.key is not None and witness.ordering_key is not None
            assert witness.key.encode() == (record.key or b""), record.case
            assert witness.ordering_key.encode() == (record.ordering_key or b""), record.case
            assert tuple((k, v.encode()) for k, v in sorted(witness.properties.items())) == (record.headers or ())
        assert record.timestamp in (None, witness.publish_time), record.case
        complete.append(replace(record, timestamp=witness.publish_time))
    return complete
