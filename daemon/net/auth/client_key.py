"""The id and secret by which an issuer identifies an OAuth 2 client."""

import json
from dataclasses import dataclass, field

from ...config import OAuth2Config
from .base import AuthError
from .secret import read_secret


@dataclass(frozen=True, slots=True)
class ClientKey:
    """A client of an issuer, with its secret."""

    issuer_url: str
    client_id: str
    client_secret: str = field(repr=False)


def read_client_key(config: OAuth2Config) -> ClientKey:
    """Read the key as it is now, from the key file or from the configuration itself. Raises AuthError.

    A key file has the format of the official clients (spec: pulsar 2.3): JSON with ``client_id`` and
    ``client_secret``, often with ``type`` and ``issuer_url``. The configuration takes precedence over the file.
    """
    if config.key_file is None:
        if config.client_secret is not None:
            secret = config.client_secret.get_secret_value()
        else:
            assert config.client_secret_file is not None, "the configuration asks for one of them"
            secret = read_secret(config.client_secret_file, "file of the client's secret").strip()
            if not secret:
                raise AuthError(f"the file of the client's secret {config.client_secret_file} is empty")
        return ClientKey(config.issuer_url or "", config.client_id or "", secret)
    path = config.key_file
    try:
        key = json.loads(read_secret(path, "key file"))
    except ValueError:
        raise AuthError(f"the key file {path} is not JSON") from None
    if not isinstance(key, dict):
        raise AuthError(f"the key file {path} is not a JSON object")
    kind = key.get("type", "client_credentials")
    if kind != "client_credentials":
        raise AuthError(f'the key file {path} is not of type "client_credentials"')
    issuer = config.issuer_url or key.get("issuer_url")
    found = {"client_id": key.get("client_id"), "client_secret": key.get("client_secret"), "issuer_url": issuer}
    for name, value in found.items():
        if not isinstance(value, str) or not value:
            raise AuthError(f"the key file {path} has no {name}")
    return ClientKey(str(issuer), str(key["client_id"]), str(key["client_secret"]))
