"""TLS towards brokers: verified by default, version 1.2 or newer."""

import ssl

from .config import ConfigError, Problem, TlsConfig

__all__ = ["client_context"]


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """Return the context of our side; certificate and host name are checked unless ``verify`` is false.

    Raises ConfigError if a file cannot be used.
    """
    context = _trusting(tls)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            # A key that wants a password must fail here, not ask for it on the terminal of a daemon.
            context.load_cert_chain(tls.cert, tls.key, password=_no_password)
        except OSError as exc:
            raise ConfigError([Problem("", "cert", f"cannot use {tls.cert}: {_reason(exc)}")]) from None
    return context


def _trusting(tls: TlsConfig) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.ca)
    except OSError as exc:
        raise ConfigError([Problem("", "ca", f"cannot use {tls.ca}: {_reason(exc)}")]) from None


def _no_password() -> bytes:
    return b""


def _reason(exc: OSError) -> str:
    if isinstance(exc, ssl.SSLError):
        return "it holds no certificate (PEM) that can be read, or the key does not belong to it"
    return exc.strerror or str(exc)
