"""Message types of Protobuf from descriptor sets, and from the files of a schema registry."""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError

from ..program import SchemaError
from .walk import MOST_INDEXES

_PROTOC = "protoc --include_imports --descriptor_set_out=FILE"
_MOST_NAMES = 20
_KNOWN = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp",
          "type", "wrappers")  # fmt: skip


def message_of(descriptors: bytes, name: str = "") -> Descriptor:
    """Return a message type of a serialized FileDescriptorSet.

    Without a ``name`` it is the only one of the files that no other file imports. Imports of google/protobuf need not
    be in the set. Raises SchemaError.
    """
    try:
        files = FileDescriptorSet.FromString(descriptors).file
    except DecodeError:
        raise SchemaError("", f"the schema is not a descriptor set, which {_PROTOC} writes") from None
    if not files:
        raise SchemaError("", "the descriptor set has no files")
    pool = _pool(files)
    if name:
        return _named(pool, name)
    imported = {each for file in files for each in file.dependency}
    found = [each for file in files if file.name not in imported for each in _top(pool.FindFileByName(file.name))]
    if len(found) != 1:
        raise SchemaError("", f"the message is not named, and there are {_listed(found)}")
    return found[0]


def registered_message(
    text: str, imports: Mapping[str, str], name: str
) -> tuple[Descriptor, tuple[tuple[int, ...], ...]]:
    """Return a message type of a file in a registry, and the paths of message indexes that name it.

    Without a ``name`` it is the only one at the top of the file that no other one there contains. The file and its
    imports by name are file descriptors, serialized and in base64. Raises SchemaError.
    """
    main = _file(text, "")
    files = [_file(each, label) for label, each in imports.items()]
    main.name = main.name or "schema.proto"
    while main.name in imports:
        main.name += ".main"
    pool = _pool([main, *files])
    file = pool.FindFileByName(main.name)
    message = _named(pool, name) if name else _root(file)
    return message, indexes_of(file, message.full_name)


def registered_set(text: str, imports: Mapping[str, str]) -> tuple[bytes, tuple[str, ...]]:
    """Return a descriptor set of a file in a registry, and the full names of the message types at its top.

    The file and its imports are as for ``registered_message``. Raises SchemaError.
    """
    main = _file(text, "")
    main.name = main.name or "schema.proto"
    files = [*(_file(each, label) for label, each in imports.items()), main]
    prefix = f"{main.package}." if main.package else ""
    return FileDescriptorSet(file=files).SerializeToString(), tuple(prefix + each.name for each in main.message_type)


def _root(file: FileDescriptor) -> Descriptor:
    """Return the only message type of a file that no other one contains. Raises SchemaError."""
    top = _top(file)
    held = {each.full_name: {field.message_type for part in _within(each) for field in part.fields} for each in top}
    roots = [each for each in top if not any(each in held[other.full_name] for other in top if other is not each)]
    if len(roots) != 1:
        raise SchemaError("", f"the message is not named, and there are {_listed(roots or top)}")
    return roots[0]


def _within(message: Descriptor) -> Iterator[Descriptor]:
    yield message
    for each in message.nested_types:
        yield from _within(each)


def _file(text: str, name: str) -> FileDescriptorProto:
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        what = name or "the schema"
        raise SchemaError("", f"the registry does not return {what} as a serialized file descriptor") from None
    file.name = name or file.name
    return file


def _named(pool: DescriptorPool, name: str) -> Descriptor:
    """Return the message type of this full name. Raises SchemaError."""
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise SchemaError("", f'there is no message "{name}"') from None


def indexes_of(file: FileDescriptor, name: str) -> tuple[tuple[int, ...], ...]:
    """Return the paths of message indexes that name a message of ``file`` (spec: Confluent wire format).

    Clients disagree on whether the hidden message of a map field counts. It is not in the text of a schema, so it does
    not count in the first path; the second one counts it, where no other message has this path. Raises SchemaError if
    there is no path.
    """
    paths: dict[tuple[int, ...], str] = {}
    for with_maps in (False, True):
        waiting: list[tuple[tuple[int, ...], Iterable[Descriptor]]] = [((), _top(file))]
        while waiting:
            path, messages = waiting.pop()
            shown = [each for each in messages if with_maps or not each.GetOptions().map_entry]
            for index, message in enumerate(shown):
                paths.setdefault((*path, index), message.full_name)
                waiting.append(((*path, index), message.nested_types))
    found = tuple(path for path, each in paths.items() if each == name and len(path) <= MOST_INDEXES)
    if not found:
        raise SchemaError("", f'"{name}" is not a message of the schema itself, or nested too deeply in others')
    return found


def _top(file: FileDescriptor) -> list[Descriptor]:
    return list(file.message_types_by_name.values())


def _listed(found: Sequence[Descriptor]) -> str:
    names = [each.full_name for each in found]
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more if names else "none"


def _pool(files: Sequence[FileDescriptorProto]) -> DescriptorPool:
    """Return a pool with these files, each after those that it imports. Raises SchemaError."""
    pool = DescriptorPool()
    given = {file.name: file for file in files}
    begun: set[str] = set()
    waiting = [(file, False) for file in reversed(files)]
    while waiting:
        file, ready = waiting.pop()
        if not ready and file.name not in begun:
            begun.add(file.name)
            waiting.append((file, True))
            needed = (given.get(name) or _known(name) for name in file.dependency)
            waiting += [(each, False) for each in needed if each is not None]
        if not ready:
            continue
        try:
            pool.Add(file)
        except TypeError as exc:
            why = " ".join(str(exc).split())[:300]
            raise SchemaError("", f"{file.name} cannot be used (made by {_PROTOC}?): {why}") from None
    return pool


def _known(name: str) -> FileDescriptorProto | None:
    """Return a file of google/protobuf that comes with the runtime."""
    if name not in {f"google/protobuf/{each}.proto" for each in _KNOWN}:
        return None
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = FileDescriptorProto()
    Default().FindFileByName(name).CopyToProto(file)
    return file
