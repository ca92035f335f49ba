"""The options by which every command that talks to a broker is told who we are and whom to trust."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer

if TYPE_CHECKING:
    from .config import ConfigError

__all__ = ["BrokerOptions", "refuse", "with_broker_options"]

TOKEN, PASSWORD = "FASTWIRE_TOKEN", "FASTWIRE_PASSWORD"

# What each option is called in a configuration's source.
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
    "server_name": "tls.server_name",
}


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Who we are to a broker, and how its certificate is checked; secrets come by file or environment only."""

    token_file: Annotated[Path | None, typer.Option(help="A file that holds the token.")] = None
    user: Annotated[str | None, typer.Option(help="A user, with --password-file or FASTWIRE_PASSWORD.")] = None
    password_file: Annotated[Path | None, typer.Option(help="A file that holds the user's password.")] = None
    mechanism: Annotated[
        str | None, typer.Option(help="How Kafka asks for it: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 (the default).")
    ] = None
    oauth2_key_file: Annotated[Path | None, typer.Option(help="The key (JSON) of a client of an issuer.")] = None
    oauth2_issuer: Annotated[str | None, typer.Option(help="The issuer, if the key file names none.")] = None
    oauth2_audience: Annotated[str | None, typer.Option(help="For whom the issuer's tokens are.")] = None
    oauth2_scope: Annotated[str | None, typer.Option(help="What the issuer's tokens are to allow.")] = None
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust (PEM).")] = None
    cert: Annotated[Path | None, typer.Option(help="Our certificate (PEM).")] = None
    key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None
    server_name: Annotated[str | None, typer.Option(help="The name that the broker's certificate carries.")] = None
    insecure: Annotated[bool, typer.Option("--insecure", help="Trust any broker.")] = False

    def keys(self, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
        """The same as keys of a source's configuration; tables that would be empty are left out."""
        source: dict[str, Any] = {}
        for option, key in _KEYS.items():
            value = getattr(self, option)
            if value is not None:
                _put(source, key, str(value))
        if self.insecure:
            _put(source, "tls.verify", False)
        if self.user is not None and self.password_file is None and environ.get(PASSWORD):
            _put(source, "auth.password", environ[PASSWORD])
        if "auth" not in source and environ.get(TOKEN):
            _put(source, "auth.token", environ[TOKEN])
        return source


def with_broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the options of BrokerOptions; it gets them as one, its argument ``broker``."""

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


def refuse(exc: "ConfigError", names: Mapping[str, str]) -> NoReturn:
    """Say the first of ``exc`` in the words of a command line; ``names`` are those of the command's own options."""
    problem = exc.problems[0]
    own = (said for key, said in names.items() if problem.key.startswith(key))
    name = _OPTIONS.get(problem.key) or next(own, problem.key)
    raise typer.BadParameter(problem.message, param_hint=name) from None


_OPTIONS = {key: "--" + option.replace("_", "-") for option, key in _KEYS.items()} | {
    "auth.token": TOKEN,
    "auth.password": PASSWORD,
    "auth.oauth2.client_id": "--oauth2-key-file",
}


def _put(tree: dict[str, Any], key: str, value: object) -> None:
    table, dot, rest = key.partition(".")
    if dot:
        _put(tree.setdefault(table, {}), rest, value)
    else:
        tree[key] = value
