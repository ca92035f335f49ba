"""The arguments and options that commands share, above all those for credentials and TLS."""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer

from fastwire.systems import SYSTEMS

if TYPE_CHECKING:
    from ..config import ConfigError

__all__ = [
    "URL_HELP",
    "BrokerOptions",
    "ConfigPath",
    "System",
    "argument",
    "files_by_name",
    "refuse",
    "with_broker_options",
]

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (TOML).", show_default=False)]
URL_HELP = "URL of the brokers: " + " or ".join(f"{name}://host:port" for name in SYSTEMS)
System = StrEnum("System", {name.upper(): name for name in SYSTEMS})  # type: ignore[misc]

TOKEN, PASSWORD = "FASTWIRE_TOKEN", "FASTWIRE_PASSWORD"

# The key of each option in the model of a connection.
_KEYS = {
    "token_file": "auth.token_file",
    "user": "auth.user",
    "password_file": "auth.password_file",
    "mechanism": "auth.mechanism",
    "oauth2_key_file": "auth.oauth2.key_file",
    "oauth2_issuer": "auth.oauth2.issuer_url",
    "oauth2_audience": "auth.oauth2.audience",
    "oauth2_scope": "auth.oauth2.scope",
    "ca": "tls.ca",
    "cert": "tls.cert",
    "key": "tls.key",
    "key_password_file": "tls.key_password_file",
    "client_id": "client_id",
    "server_name": "tls.server_name",
}


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Credentials and TLS settings for a broker; secrets come from files or the environment."""

    token_file: Annotated[Path | None, typer.Option(help="File with the token.")] = None
    user: Annotated[str | None, typer.Option(help="User name, with --password-file or FASTWIRE_PASSWORD.")] = None
    password_file: Annotated[Path | None, typer.Option(help="File with the user's password.")] = None
    mechanism: Annotated[
        str | None, typer.Option(help="SASL mechanism of the user: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 (the default).")
    ] = None
    oauth2_key_file: Annotated[Path | None, typer.Option(help="OAuth 2 client key file (JSON).")] = None
    oauth2_issuer: Annotated[str | None, typer.Option(help="URL of the OAuth 2 issuer, if the key file has none.")] = (
        None
    )
    oauth2_audience: Annotated[str | None, typer.Option(help="Audience of the OAuth 2 tokens.")] = None
    oauth2_scope: Annotated[str | None, typer.Option(help="Scope of the OAuth 2 tokens.")] = None
    ca: Annotated[Path | None, typer.Option(help="CA certificates to trust (PEM).")] = None
    cert: Annotated[Path | None, typer.Option(help="Client certificate (PEM).")] = None
    key: Annotated[Path | None, typer.Option(help="Key of the client certificate (PEM).")] = None
    key_password_file: Annotated[Path | None, typer.Option(help="File with the key's password.")] = None
    client_id: Annotated[str | None, typer.Option(help="Client id, for the brokers' logs and quotas.")] = None
    server_name: Annotated[str | None, typer.Option(help="Name that the broker's certificate must carry.")] = None
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not verify the broker's certificate.")] = False

    def keys(self, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
        """Return the options as keys of a connection, without empty tables."""
        connection: dict[str, Any] = {}
        for option, key in _KEYS.items():
            value = getattr(self, option)
            if value is not None:
                _put(connection, key, str(value))
        if self.insecure:
            _put(connection, "tls.verify", False)
        if self.user is not None and self.password_file is None and environ.get(PASSWORD):
            _put(connection, "auth.password", environ[PASSWORD])
        if "auth" not in connection and environ.get(TOKEN):
            _put(connection, "auth.token", environ[TOKEN])
        return connection


def with_broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of BrokerOptions to ``command``, which receives them as its argument ``broker``."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        ours = {field.name: given.pop(field.name) for field in fields(BrokerOptions)}
        command(**given, broker=BrokerOptions(**ours))

    hints = get_type_hints(BrokerOptions, include_extras=True)
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "broker"]
    ours = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(BrokerOptions)
    ]
    run.__signature__ = signature.replace(parameters=own + ours)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own + ours}
    return run


def files_by_name(option: str, given: list[str] | None) -> dict[str, str]:
    """Return the files of options of the form NAME=FILE, by name. Raises BadParameter."""
    found = {}
    for each in given or ():
        name, mark, path = each.partition("=")
        if not (name and mark and path):
            raise typer.BadParameter(f'"{each}" is not NAME=FILE', param_hint=option)
        found[name] = path
    return found


def refuse(exc: "ConfigError", broker: BrokerOptions, names: Mapping[str, str]) -> NoReturn:
    """Raise BadParameter for the first problem of ``exc``; ``names`` maps keys to the command's own options.

    A table of keys is named by the options that are given for it.
    """
    problem = exc.problems[0]
    own = (said for key, said in names.items() if problem.key.startswith(key))
    given = " and ".join(option for key, option in _OPTIONS.items() if key in _dotted(broker.keys(), problem.key))
    name = _OPTIONS.get(problem.key) or given or next(own, problem.key)
    raise typer.BadParameter(problem.message, param_hint=name) from None


@contextmanager
def argument(name: str) -> Iterator[None]:
    """Raise BadParameter for the argument ``name`` where the block raises ValueError."""
    try:
        yield
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint=name) from None


_OPTIONS = {key: "--" + option.replace("_", "-") for option, key in _KEYS.items()} | {
    "auth.token": TOKEN,
    "auth.password": PASSWORD,
    "auth.oauth2.client_id": "--oauth2-key-file",
    "tls.verify": "--insecure",
}


def _dotted(tree: Mapping[str, Any], key: str) -> set[str]:
    """Return the dotted keys of the table ``key`` in a tree of tables."""
    table = tree.get(key)
    if not isinstance(table, Mapping):
        return set()
    return {f"{key}.{name}" for name in table} | {
        f"{key}.{dotted}" for name in table for dotted in _dotted(table, name)
    }


def _put(tree: dict[str, Any], key: str, value: object) -> None:
    table, dot, rest = key.partition(".")
    if dot:
        _put(tree.setdefault(table, {}), rest, value)
    else:
        tree[key] = value
