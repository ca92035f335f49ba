"""TLS towards brokers: verified by default, version 1.2 or newer, with the files as they are now."""

import ssl
from pathlib import Path

from .config import ConfigError, Problem, TlsConfig
from .logs import get_logger

__all__ = ["ClientTls", "client_context"]

log = get_logger("tls")


class ClientTls:
    """The context of each new connection: made anew when a file of it has changed.

    A changed file that cannot be used (a certificate is being renewed, and its key is not there yet) is said once, and
    connections go on with the context that there was: whether that is still good is the broker's to say. Certificates
    of the system are read once. The constructor raises ConfigError if a file cannot be used from the start.
    """

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._seen = _signature(tls)  # before the files are read: what changes meanwhile is seen next time
        self._context = client_context(tls)
        self._broken: tuple[object, ...] | None = None

    def context(self) -> ssl.SSLContext:
        """The context for a connection that is about to be made."""
        now = _signature(self._tls)
        if now == self._seen:
            return self._context
        try:
            self._context = client_context(self._tls)
        except ConfigError as exc:
            if now != self._broken:
                log.error("a changed TLS file cannot be used; connections go on with the old one", error=str(exc))
            self._broken = now
        else:
            log.info("TLS files read again")
            self._seen, self._broken = now, None
        return self._context


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


def _signature(tls: TlsConfig) -> tuple[object, ...]:
    """What changes when one of the files does."""
    return tuple(_file_signature(path) for path in (tls.ca, tls.cert, tls.key))


def _file_signature(path: Path | None) -> tuple[int, ...] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


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
