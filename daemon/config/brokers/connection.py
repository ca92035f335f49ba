"""The keys for a connection to brokers, which sources, Spark jobs and commands share, and the models of a system."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from fastwire.systems import grammar_of, grammar_without_tls, grammars, package_of

from ..table import Table, table_in
from ..values.fields import Url
from ..values.text import KeyPath

Tell = Callable[[KeyPath, str], None]
"""Receives the path of a key and the message of a problem with it."""


class Connection(Table):
    """The brokers, and the keys for connections to them. Each system has a model of its own with more keys."""

    url: Url
    """Addresses of brokers: SYSTEM://host:port, or SYSTEM+ssl:// for TLS; several hosts are separated by commas."""

    lacks: ClassVar[Mapping[str, str]] = {}
    """Advice about keys of other systems that this one does not have, by key. It ends the message of the mistake."""

    unranged: ClassVar[str] = ""
    """The reason why no range of a topic can be read again, which Spark has to do; "" if ranges can be read."""

    @classmethod
    def of(cls, given: "Connection") -> Self:
        """Return ``given``, which is of this model: the URL has chosen it."""
        assert isinstance(given, cls)
        return given

    @property
    def system(self) -> str:
        """The name of the message system of ``url``."""
        grammar = grammar_of(self.url)
        assert grammar is not None  # the grammar has parsed ``url``
        return grammar.name

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report conflicting keys of this system to ``tell``. ``table`` is as written in the file."""


C = TypeVar("C", bound=Connection)


def model_of(system: str, name: str, base: type[C]) -> type[C]:
    """Return the model ``name`` of a system's module ``config``, a subclass of ``base``; without one ``base`` itself.

    The first call for a system imports the module.
    """
    room = f"{__package__.rpartition('.config.')[0]}.systems"
    model: type[C] = getattr(import_module(f"{package_of(system, room)}.config"), name, base)
    assert issubclass(model, base)
    return model


def connection_model(system: str) -> type[Connection]:
    """Return the model of a system's connections."""
    return model_of(system, "CONNECTION", Connection)


def model_for(table: Mapping[str, Any], models: Callable[[str], type[C]]) -> type[C]:
    """Return one of ``models`` for a table as written in a file: by its URL, or the one that shares most of its keys.

    The latter is used where the URL is wrong, and reports the other mistakes of the table.
    """
    url = table.get("url", "")
    grammar = grammar_of(url) or grammar_without_tls(url)
    if grammar is not None:
        return models(grammar.name)
    found = (models(each.name) for each in grammars())
    return max(found, key=lambda model: len(table.keys() & model.known_keys()))


def keys_of_systems(models: Callable[[str], type[Table]]) -> frozenset[str]:
    """Return the keys that a table has in any system. ``models`` returns the model of the table for a system."""
    return frozenset(key for grammar in grammars() for key in models(grammar.name).known_keys())


def keys_of_others(
    table: Mapping[str, Any], own: type[Table], others: Mapping[str, type[Table]]
) -> Iterator[tuple[KeyPath, list[str]]]:
    """Yield the keys of a table that ``own``, its model, lacks and other systems have, with the names of those systems.

    ``others`` are the models of the table, by system. The keys of tables within the table are looked at, too.
    """
    for key, value in table.items():
        having = {system: model for system, model in others.items() if key in model.known_keys()}
        if key not in own.known_keys():
            if having:
                yield (key,), list(having)
        elif isinstance(value, Mapping) and (inner := _inner(own, key)) is not None:
            inner_others = {system: found for system, model in having.items() if (found := _inner(model, key))}
            for path, systems in keys_of_others(value, inner, inner_others):
                yield (key, *path), systems


def _inner(model: type[Table], key: str) -> type[Table] | None:
    """Return the model of the table ``key`` of a table; None if the value of ``key`` is not a table of keys."""
    field = model.model_fields.get(key)
    return None if field is None else table_in(field.annotation)
