"""TLS towards brokers: verified by default, version 1.2 or newer, with certificate files reloaded on change."""

import ssl
from pathlib import Path

from ..config import ConfigError, Problem, TlsConfig
from ..config.values.secretpath import shown_path
from ..runtime.logs import get_logger

log = get_logger("tls")


class ClientTls:
    """The TLS context for new connections, made again when one of its files has changed.

    A changed file that cannot be used (a certificate is being renewed, and its key is not there yet) is logged once,
    and new connections keep the previous context, which the broker may still accept. The system's certificates are
    read once. The constructor raises ConfigError if a file cannot be used from the start.
    """

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._seen = _signature(tls)  # before the files are read: a change meanwhile is noticed next time
        self._context = client_context(tls)
        self._broken: tuple[object, ...] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection that is about to be made."""
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
    """Return the client's TLS context; certificate and host name are checked unless ``verify`` is false.

    Raises ConfigError if a file cannot be used.
    """
    context = _trusting(tls)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        key = "key_password" if tls.key_password_file is None else "key_password_file"
        password = _key_password(tls)
        asked = False

        def answer() -> bytes:
            nonlocal asked
            asked = True
            return password

        try:
            # Without a password an encrypted key must fail here, not ask for it on the terminal of a daemon.
            context.load_cert_chain(tls.cert, tls.key, password=answer)
        except ValueError:
            raise ConfigError([Problem("", key, "is longer than the password of a key can be (1023 bytes)")]) from None
        except OSError as exc:
            if asked:
                why = "does not open the key" if password else "is needed: the key is encrypted"
                raise ConfigError([Problem("", key, why)]) from None
            raise ConfigError([Problem("", "cert", f"cannot use {shown_path(tls.cert)}: {_reason(exc)}")]) from None
    return context


def _signature(tls: TlsConfig) -> tuple[object, ...]:
    """Return a value that changes when one of the files does."""
    return tuple(_file_signature(path) for path in (tls.ca, tls.cert, tls.key, tls.key_password_file))


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
        raise ConfigError([Problem("", "ca", f"cannot use {shown_path(tls.ca or '')}: {_reason(exc)}")]) from None


def _key_password(tls: TlsConfig) -> bytes:
    """Return the password of the key as it is now, b"" if there is none."""
    if tls.key_password is not None:
        return tls.key_password.get_secret_value().encode()
    if tls.key_password_file is None:
        return b""
    try:
        return tls.key_password_file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    except OSError as exc:
        why = f"cannot read {shown_path(tls.key_password_file)}: {_reason(exc)}"
        raise ConfigError([Problem("", "key_password_file", why)]) from None


def _reason(exc: OSError) -> str:
    if isinstance(exc, ssl.SSLError):
        return "it holds no readable PEM certificate, or the key does not match it"
    return exc.strerror or str(exc)
