"""Records with every field that a producer takes, and what the official client has to say of them once written."""

import pulsar

from fastwire.pulsar.format.payload import Compression, Record
from fastwire.pulsar.producing.batcher import BatchLimits


def records(codec: Compression, batching: BatchLimits | None, count: int) -> list[Record]:
    """``count`` records with all fields, and some that lack nearly everything; no value comes twice."""
    found = [
        Record(
            value=b"value %d " % number * number,
            key=f"k{number % 3}",
            ordering_key=b"o%d" % (number % 3),
            properties=(("number", str(number)), ("é", "ü")),
            event_time=1_600_000_000_000 + number,
        )
        for number in range(1, count + 1)
    ]
    found += [Record(value=b"bare"), Record(value=b"bytes", key="a2V5", key_is_base64=True)]
    # What is empty and compressed with zlib outside of a batch the official client takes for corrupt.
    if batching is not None or codec is not Compression.ZLIB:
        found += [Record(value=b""), Record(value=None, key="gone")]
    return found


def assert_read(messages: list[pulsar.Message], given: list[Record], producer: str) -> None:
    """The messages are the records ``given``, each once, with every field."""
    expected = {record.value: record for record in given}
    for message in messages:
        record = expected.pop(None if message.has_null_value() else message.data())
        assert message.partition_key() == (record.key or "")  # base64 as it stands, too
        assert message.ordering_key() == (record.ordering_key or b"").decode()
        assert message.properties() == dict(record.properties)
        assert message.event_timestamp() == record.event_time
        assert message.producer_name() == producer
        assert message.publish_timestamp() > 1_700_000_000_000
    assert expected == {}
