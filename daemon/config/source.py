"""``[pipelines.NAME.source]``: the keys that all systems share, and the choice of the system's model by the URL."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, Literal

from pydantic import SerializeAsAny, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from fastwire.systems import grammar_of, grammars

from .access import AuthConfig, TlsConfig
from .fields import Pattern, StartField, Text, Topic, Url
from .table import Table
from .text import KeyPath

__all__ = [
    "AuthField",
    "SourceConfig",
    "SourceField",
    "Tell",
    "auth_model",
    "keys_of_others",
    "model_for",
    "source_model",
    "source_models",
]

Tell = Callable[[KeyPath, str], None]
"""Receives the path of a key and the message of a problem with it."""


class SourceConfig(Table):
    """The source of the records. Each system has a model of its own with more keys (``systems/<name>/config.py``)."""

    url: Url
    """The broker: pulsar://host:port or kafka://host:port, with +ssl for TLS; several hosts are separated by commas."""
    topics: tuple[Topic, ...] = ()
    """Topics by name; a partitioned topic means all its partitions."""
    topics_pattern: Pattern | None = None
    """Instead of topics: a pattern, which also finds later topics (Pulsar: TENANT/NAMESPACE/REGEX, Kafka: REGEX)."""
    subscription: Text
    """Pulsar's subscription or Kafka's consumer group, where the broker keeps the progress; `group` is an alias."""
    start: StartField
    """First position on a topic of which nothing has landed. Partitions added later are read from their beginning."""
    auth: AuthConfig = AuthConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()
    cluster: Text | None = None
    """Name of the cluster in the dataset's log; default: the hosts of the URL when the dataset was created.

    Set it to that name when other hosts lead to the same cluster.
    """
    on_corrupt: Literal["divert", "stop"] = "divert"
    """Reaction to an entry that cannot be decoded. divert: keep it as a dead letter; stop: stop the partition."""

    @property
    def system(self) -> str:
        """The name of the message system of ``url``."""
        grammar = grammar_of(self.url)
        assert grammar is not None  # the grammar has parsed ``url``
        return grammar.name

    @property
    def cluster_name(self) -> str:
        """The name of the cluster in the log of a new dataset."""
        return self.cluster or self.url.hosts

    @property
    def shared(self) -> bool:
        """True if several consumers receive the records of one log at the same time, unordered."""
        return False

    @classmethod
    def check(cls, path: KeyPath, source: Mapping[str, Any], tell: Tell) -> None:
        """Report conflicting keys of this system to ``tell``. ``source`` is the table as written in the file."""


def source_model(system: str) -> type[SourceConfig]:
    """Return the model of a system's sources. The first call for a system imports its module."""
    package = __package__.rpartition(".")[0]
    model: type[SourceConfig] = import_module(f"{package}.systems.{system}.config").SOURCE
    return model


def source_models() -> dict[str, type[SourceConfig]]:
    """Return the models of all systems by name."""
    return {grammar.name: source_model(grammar.name) for grammar in grammars()}


def keys_of_others(system: str, models: Callable[[str], type[Table]]) -> dict[str, str]:
    """Return the keys that a table of ``system`` lacks, each with the name of a system that has it.

    ``models`` returns the model of the table for a system: ``source_model`` or ``auth_model``.
    """
    own = models(system).model_fields
    return {key: grammar.name for grammar in grammars() for key in models(grammar.name).model_fields if key not in own}


def auth_model(system: str) -> type[AuthConfig]:
    """Return the model of the table ``auth`` of a system."""
    model = source_model(system).model_fields["auth"].annotation
    assert isinstance(model, type) and issubclass(model, AuthConfig)
    return model


def _auth_by_url(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> AuthConfig:
    """Validate a table ``auth`` with the model of the system of the URL beside it."""
    grammar = grammar_of(info.data.get("url", ""))
    found: AuthConfig = handler(value) if grammar is None else auth_model(grammar.name).model_validate(value)
    return found


def model_for(table: Mapping[str, Any]) -> type[SourceConfig]:
    """Return the model for a table as written in a file: by its URL, or the model that shares most of its keys.

    The latter is used where the URL is wrong, and reports the other mistakes of the table.
    """
    grammar = grammar_of(table.get("url", ""))
    if grammar is not None:
        return source_model(grammar.name)
    return max(source_models().values(), key=lambda model: len(model.model_fields.keys() & table.keys()))


def _by_url(value: Any, handler: ValidatorFunctionWrapHandler) -> SourceConfig:
    """Validate a table with the model of the system of its URL."""
    if not isinstance(value, dict):
        found: SourceConfig = handler(value)
        return found
    grammar = grammar_of(value.get("url", ""))
    if grammar is None and isinstance(value.get("start"), dict):
        value = value | {"start": "earliest"}  # positions of an unknown system cannot be parsed
    return model_for(value).model_validate(value, context={"grammar": grammar})


AuthField = Annotated[SerializeAsAny[AuthConfig], WrapValidator(_auth_by_url)]
SourceField = Annotated[SerializeAsAny[SourceConfig], WrapValidator(_by_url)]
