"""Checks of parsed protobuf messages that the parser leaves to its caller."""

from google.protobuf.message import Message


def garbled_field(message: Message) -> str | None:
    """Return the name of a text field that is not UTF-8, for which the parser returns bytes; None if there is none."""
    for field, found in message.ListFields():
        if field.type == field.TYPE_STRING:
            if any(isinstance(one, bytes) for one in ((found,) if isinstance(found, str | bytes) else found)):
                return str(field.full_name)
        elif field.type == field.TYPE_MESSAGE:
            for one in (found,) if isinstance(found, Message) else found:
                if name := garbled_field(one):
                    return name
    return None
