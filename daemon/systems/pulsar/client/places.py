"""Places in topics as programs give them to readers and to ``Consumer.seek``, in the few forms that these work with."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

from fastwire.position import Position
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.protocol.message_id import MessageId

from ..producer import Sent

Message = MessageId | Sent | Position
"""A message, by its id, as ``send`` returns it, or by the position of its entry."""

Place = Message | datetime | timedelta | Literal["earliest", "latest"]
"""A message, a time with a time zone, a time before now, or an end of the topic."""

Places = Place | Mapping[str, Message]
"""One place, or a message for each partition by its name."""

End = Literal["earliest", "latest"]

_NAMED = 'use "earliest", "latest", a datetime with a time zone, a timedelta or a MessageId'


def place_of(given: Place) -> MessageId | datetime | End:
    """Return a place that does not depend on the time of its use. Raises ValueError for everything else."""
    if isinstance(given, MessageId | Sent | Position):
        return message_of(given)
    if isinstance(given, timedelta):
        return datetime.now(UTC) - given
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError(f"{given.isoformat()} has no time zone")
        return given
    if given in ("earliest", "latest"):
        return given
    raise ValueError(f"{given!r:.200} is not a place in a topic: {_NAMED}{_advice(given)}")


def places_of(given: Places) -> MessageId | datetime | End | dict[str, MessageId]:
    """Return ``place_of``, or the messages by the full names of their partitions. Raises ValueError."""
    if not isinstance(given, Mapping):
        return place_of(given)
    found: dict[str, MessageId] = {}
    for name, message in given.items():
        if not isinstance(name, str) or not isinstance(message, MessageId | Sent | Position):
            raise ValueError(f"{name!r:.200}: {message!r:.200} is not a partition's name and a MessageId")
        found[str(parse_topic(name))] = message_of(message)
    if not found:
        raise ValueError("a mapping without partitions is not a place in a topic")
    return found


def message_of(given: Message) -> MessageId:
    """Return the id of a message. Raises ValueError for a record whose position is not known."""
    if isinstance(given, MessageId):
        return given
    if isinstance(given, Position):
        return MessageId(given.a, given.b)
    if given.position.a < 0:
        raise ValueError("the broker has recognised the record as stored before, and has not said where it is")
    return MessageId(given.position.a, given.position.b, given.batch_index, given.partition, first=given.first)


def _advice(given: object) -> str:
    if isinstance(given, bytes | bytearray):
        return "; MessageId.from_bytes reads the stored form of one"
    if isinstance(given, str):
        return "; MessageId.parse reads the text of one"
    if isinstance(given, int | float):
        return "; datetime.fromtimestamp(seconds, UTC) makes a time of a number"
    return ""
