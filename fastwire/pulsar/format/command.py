"""Encoding and decoding of simple command frames (spec: pulsar 1.1) with the generated protobuf classes.

Hot commands (MESSAGE, FLOW, ACK) have hand-written code in ``scan`` and ``ack``; this module serves all others, for
both sides of the protocol.
"""

from typing import Any, cast

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.wire.messages import garbled_field

PROTOCOL_VERSION = 21
MIN_PROTOCOL_VERSION = 12  # below it an ACK cannot carry several ids
DEFAULT_MAX_MESSAGE_SIZE = 5 * 1024 * 1024
FRAME_PADDING = 10 * 1024  # largest frame = max_message_size + this (spec: pulsar 1.3)

# Name of the sub-command by type: a field of BaseCommand has the number of its type.
_FIELDS = {number: field.name for number, field in pb.BaseCommand.DESCRIPTOR.fields_by_number.items() if number > 1}
# Commands without a required body.
_BODILESS = frozenset({int(pb.BaseCommand.PING), int(pb.BaseCommand.PONG)})


def encode_command(command: pb.BaseCommand) -> bytes:
    """Return the complete frame of a command without payload."""
    body = command.SerializeToString()
    size = len(body)
    return (size + 4).to_bytes(4, "big") + size.to_bytes(4, "big") + body


def decode_command(body: bytes | memoryview) -> pb.BaseCommand:
    """Parse the BaseCommand in ``body``, the bytes after commandSize.

    Raises ProtocolError if it is not a protobuf message, lacks a required field or contains text that is not UTF-8.
    Raises UnsupportedError for a valid command of an unknown type, which the caller ignores.
    """
    try:
        command = pb.BaseCommand.FromString(bytes(body))
    except DecodeError as exc:
        raise ProtocolError("BaseCommand", 8, detail=str(exc)) from None
    if not command.HasField("type"):
        raise _unknown_type(command)
    name = _FIELDS.get(command.type)
    if name is None:
        raise UnsupportedError(f"command {pb.BaseCommand.Type.Name(command.type)}")
    if command.type not in _BODILESS and not command.HasField(name):
        raise ProtocolError("BaseCommand", 8, detail=f"{pb.BaseCommand.Type.Name(command.type)} without its {name}")
    if not command.IsInitialized():
        _forgive_new_errors(command)
        # The generated stubs leave this method out.
        if missing := cast(Any, command).FindInitializationErrors():
            raise ProtocolError("BaseCommand", 8, detail=f"required {', '.join(sorted(missing))} missing")
    if garbled := garbled_field(command):
        raise ProtocolError("BaseCommand", 8, detail=f"{garbled} is not UTF-8")
    return command


def body_of(command: pb.BaseCommand) -> Any:
    """Return the part of a command that its type names."""
    return getattr(command, _FIELDS[command.type])


def server_error_name(code: int) -> str:
    """Return the protocol's name of an error code; "ServerError" and the number for an unknown code."""
    try:
        return pb.ServerError.Name(code)
    except ValueError:
        return f"ServerError{code}"


def _unknown_type(command: pb.BaseCommand) -> ProtocolError | UnsupportedError:
    # The parser stores a number that the enum lacks as an unknown field.
    for field in _unknown_fields(command):
        if field.field_number == 1:
            return UnsupportedError(f"command number {field.data}")
    return ProtocolError("BaseCommand", 8, detail="required type missing")


def _forgive_new_errors(command: pb.BaseCommand) -> None:
    """Replace an unknown error code of a newer broker by UnknownError, so that the error still answers its request."""
    bodies: tuple[tuple[pb.CommandError | pb.CommandSendError, int], ...] = (
        (command.error, 2),
        (command.send_error, 3),
    )
    for body, number in bodies:
        if not body.HasField("error") and any(field.field_number == number for field in _unknown_fields(body)):
            body.error = pb.UnknownError


def _unknown_fields(message: Any) -> list[Any]:
    """Return the unknown fields of a message; the generated stubs do not declare that they are iterable."""
    return list(cast(Any, UnknownFieldSet(message)))
