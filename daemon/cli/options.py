"""The arguments and options that commands share, above all those for credentials and TLS."""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fastwire.grammar import KeyOption
from fastwire.systems import SYSTEMS, grammars

if TYPE_CHECKING:
    from ..config import ConfigError, Connection

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file (TOML).", show_default=False)]
COMPLETE = "_FASTWIRE_CONSUME_COMPLETE"
"""The environment variable by which the script of a shell asks for completions."""
DAEMON_DEFAULT = "127.0.0.1:8650"
DAEMON_HELP = "A running daemon: http://host:port, unix:/path, or its configuration file (TOML)."
DaemonName = Annotated[str, typer.Argument(metavar="DAEMON", help=DAEMON_HELP)]
DatasetPlace = Annotated[
    str, typer.Argument(metavar="PATH", help="Folder of a dataset, or its URL in an object store.", show_default=False)
]
StoreAccess = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration with the access to the object store; default: the environment."),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.001, help="Longest wait for an answer.")]
URL_HELP = "URL of the brokers: " + " or ".join(f"{name}://host:port" for name in SYSTEMS)
System = StrEnum("System", {name.upper(): name for name in SYSTEMS})  # type: ignore[misc]

TOKEN, PASSWORD = "FASTWIRE_TOKEN", "FASTWIRE_PASSWORD"

_COMMON = (
    KeyOption("--token-file", "auth.token_file", "File with the token.", "file"),
    KeyOption("--user", "auth.user", "User name, with --password-file or FASTWIRE_PASSWORD."),
    KeyOption("--password-file", "auth.password_file", "File with the user's password.", "file"),
    KeyOption("--oauth2-key-file", "auth.oauth2.key_file", "OAuth 2 client key file (JSON).", "file"),
    KeyOption("--oauth2-issuer", "auth.oauth2.issuer_url", "URL of the OAuth 2 issuer, if the key file has none."),
    KeyOption("--oauth2-audience", "auth.oauth2.audience", "Audience of the OAuth 2 tokens."),
    KeyOption("--oauth2-scope", "auth.oauth2.scope", "Scope of the OAuth 2 tokens."),
    KeyOption("--ca", "tls.ca", "CA certificates to trust (PEM).", "file"),
    KeyOption("--cert", "tls.cert", "Client certificate (PEM).", "file"),
    KeyOption("--key", "tls.key", "Key of the client certificate (PEM).", "file"),
    KeyOption("--key-password-file", "tls.key_password_file", "File with the key's password.", "file"),
    KeyOption("--server-name", "tls.server_name", "Name that the broker's certificate must carry."),
)
_OWN = tuple({option.name: option for grammar in grammars() for option in grammar.options}.values())


@dataclass(frozen=True)
class BrokerOptions:
    """The options for a broker, above all credentials and TLS; secrets come from files or the environment."""

    given: Mapping[KeyOption, Any]
    insecure: bool

    def keys(self, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
        """Return the options as keys of a connection, without empty tables. Raises BadParameter."""
        connection: dict[str, Any] = {}
        for option, value in self.given.items():
            _put(connection, option.key, files_by_name(option.name, value) if isinstance(value, list) else str(value))
        if self.insecure:
            _put(connection, "tls.verify", False)
        auth = connection.get("auth", {})
        if "user" in auth and "password_file" not in auth and environ.get(PASSWORD):
            _put(connection, "auth.password", environ[PASSWORD])
        if not auth and environ.get(TOKEN):
            _put(connection, "auth.token", environ[TOKEN])
        return connection

    def connection(self, url: str) -> "Connection":
        """Return the connection to the brokers at ``url``. Raises BadParameter."""
        from ..config import ConfigError, parse_connection

        try:
            return parse_connection({"url": url} | self.keys())
        except ConfigError as exc:
            refuse(exc, self)


_INSECURE = inspect.Parameter(
    "insecure",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--insecure", help="Do not verify the broker's certificate.")],
)


def broker_options(params: Mapping[str, Any]) -> BrokerOptions:
    """Return the options among the parameters of a command, by the names of its arguments."""
    values = {option: params.get(_argument_name(option)) for option in (*_COMMON, *_OWN)}
    set_ = {option: value for option, value in values.items() if value not in (None, [], ())}
    return BrokerOptions(set_, bool(params.get(_INSECURE.name)))


def _argument_name(option: KeyOption) -> str:
    return option.name.removeprefix("--").replace("-", "_")


def _kind(option: KeyOption) -> Any:
    """Return the type of the argument for an option."""
    if option.choices:
        return StrEnum("Choice", {choice.upper(): choice for choice in option.choices})
    return {"text": str, "file": Path, "NAME=FILE": list[str]}[option.form]


def _parameter(option: KeyOption) -> inspect.Parameter:
    """Return the argument of a command for an option."""
    metavar = option.form if option.form == "NAME=FILE" else None
    said = typer.Option(option.name, help=option.help, metavar=metavar)
    return inspect.Parameter(
        _argument_name(option),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_kind(option) | None, said],
    )


def with_broker_options(*, reading: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options for a broker to a command, which receives them as ``broker``.

    With ``reading`` the command also has the options that are only for reading records.
    """
    ours = [option for option in (*_COMMON, *_OWN) if reading or not option.reading]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            shared = {name: given.pop(name) for name in (_INSECURE.name, *map(_argument_name, ours))}
            command(broker=broker_options(shared), **given)

        signature = inspect.signature(command, eval_str=True)
        own = [parameter for name, parameter in signature.parameters.items() if name != "broker"]
        parameters = [*own, *map(_parameter, ours), _INSECURE]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def files_by_name(option: str, given: list[str] | None) -> dict[str, str]:
    """Return the files of options of the form NAME=FILE, by name. Raises BadParameter."""
    found = {}
    for each in given or ():
        name, mark, path = each.partition("=")
        if not (name and mark and path):
            raise typer.BadParameter(f'"{each}" is not NAME=FILE', param_hint=option)
        found[name] = path
    return found


def refuse(exc: "ConfigError", broker: BrokerOptions) -> NoReturn:
    """Raise BadParameter for the first problem of ``exc``, by the name of its option.

    A table of keys is named by the options that are given for it, and a key of a table by the option for the table.
    """
    problem = exc.problems[0]
    given = " and ".join(option for key, option in _OPTIONS.items() if key in _dotted(broker.keys(), problem.key))
    table = next((option for key, option in _OPTIONS.items() if problem.key.startswith(f"{key}.")), problem.key)
    name = _OPTIONS.get(problem.key) or given or table
    raise typer.BadParameter(problem.message, param_hint=name) from None


def complete_pipeline(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of pipelines in the file CONFIG of the command line that begin with ``incomplete``."""
    import tomllib

    # An option that has no value yet ends the parsing: then CONFIG is still among the arguments.
    config = ctx.params.get("config") or next(iter(ctx.args), "")
    try:
        names = tomllib.loads(Path(config).read_text(encoding="utf-8"))["pipelines"]
        return [name for name in names if name.startswith(incomplete)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


@contextmanager
def argument(name: str) -> Iterator[None]:
    """Raise BadParameter for the argument ``name`` where the block raises ValueError."""
    try:
        yield
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint=name) from None


_OPTIONS = {option.key: option.name for option in (*_COMMON, *_OWN)} | {
    "url": "URL",
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
