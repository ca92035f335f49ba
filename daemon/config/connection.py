"""The keys for a connection to brokers, which sources, Spark jobs and commands share, and the models of a system."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from fastwire.systems import grammar_of, grammars, package_of

from .access import AuthConfig, TlsConfig
from .fields import Url
from .table import Table
from .text import KeyPath

__all__ = ["Connection", "Tell", "auth_model", "connection_model", "keys_of_others", "model_for", "model_of"]

Tell = Callable[[KeyPath, str], None]
"""Receives the path of a key and the message of a problem with it."""


class Connection(Table):
    """The brokers, and the keys for connections to them. Each system has a model of its own with more keys."""

    url: Url
    """The broker: pulsar://host:port or kafka://host:port, with +ssl for TLS; several hosts are separated by commas."""
    auth: AuthConfig = AuthConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()

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
    room = f"{__package__.rpartition('.')[0]}.systems"
    model: type[C] = getattr(import_module(f"{package_of(system, room)}.config"), name, base)
    assert issubclass(model, base)
    return model


def connection_model(system: str) -> type[Connection]:
    """Return the model of a system's connections."""
    return model_of(system, "CONNECTION", Connection)


def auth_model(system: str) -> type[AuthConfig]:
    """Return the model of the table ``auth`` of a system."""
    model = connection_model(system).model_fields["auth"].annotation
    assert isinstance(model, type) and issubclass(model, AuthConfig)
    return model


def model_for(table: Mapping[str, Any], models: Callable[[str], type[C]]) -> type[C]:
    """Return one of ``models`` for a table as written in a file: by its URL, or the one that shares most of its keys.

    The latter is used where the URL is wrong, and reports the other mistakes of the table.
    """
    grammar = grammar_of(table.get("url", ""))
    if grammar is not None:
        return models(grammar.name)
    found = (models(each.name) for each in grammars())
    return max(found, key=lambda model: len(model.model_fields.keys() & table.keys()))


def keys_of_others(system: str, models: Callable[[str], type[Table]]) -> dict[str, str]:
    """Return the keys that a table of ``system`` lacks, each with the name of a system that has it.

    ``models`` returns the model of the table for a system, as ``connection_model`` and ``auth_model`` do.
    """
    own = models(system).model_fields
    return {key: grammar.name for grammar in grammars() for key in models(grammar.name).model_fields if key not in own}
