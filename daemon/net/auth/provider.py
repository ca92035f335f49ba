"""Tokens of plug-ins: entry points of the group ``fastwire.tokens``."""

import inspect
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from fastwire.errors import FastwireError

from ...config import ConfigError, Problem
from ...config.brokers.access import ProviderConfig
from ...runtime.tasks import in_thread
from .base import AuthError, UnavailableError
from .secret import sound_token

GROUP = "fastwire.tokens"
TIMEOUT_S = 30.0
MOST_CALLS = 16  # at once, also of calls that were given up and have not ended


class ProvidedCredentials:
    """A fresh token of a plug-in for each login.

    The plug-in is a callable that takes the options of the configuration as keywords and returns a function; that one
    returns a token. It runs in a thread of its own, so it may block, for 30 s at most. A call that takes longer cannot
    be ended; while 16 have not ended, none is made. Raises ConfigError if no such plug-in is installed, or if it does
    not take these options.
    """

    method = "token"

    def __init__(self, config: ProviderConfig) -> None:
        self._name = config.type
        self._options = dict(config.options)
        self._factory = _load(config)
        self._read: Callable[[], str] | None = None
        self._free = threading.Semaphore(MOST_CALLS)

    async def data(self) -> bytes | None:
        """Return a new token. Raises AuthError, or UnavailableError if the plug-in fails or takes too long."""
        if not self._free.acquire(blocking=False):
            raise UnavailableError(f"{self._name} has not ended {MOST_CALLS} earlier calls: it is not called again")
        try:
            return sound_token(await in_thread(self._ask, TIMEOUT_S, f"a token of {self._name}"))
        except TimeoutError:
            raise UnavailableError(f"{self._name} has made no token within {TIMEOUT_S:.0f} s") from None

    def forget(self, data: bytes | None) -> None:
        """Do nothing: there is no cache."""

    def check(self) -> str:
        """Start the plug-in without asking it for a token; return a short summary. Raises AuthError."""
        self._start()
        return f"tokens of the plug-in {self._name}"

    def _start(self) -> Callable[[], str]:
        if self._read is None:
            self._read = self._call(lambda: self._factory(**self._options), AuthError)
        return self._read

    def _ask(self) -> str:
        try:
            return str(self._call(self._start(), UnavailableError))
        finally:
            self._free.release()

    def _call(self, function: Callable[[], Any], fault: type[FastwireError]) -> Any:
        """Return the result; a fault of the plug-in becomes ``fault``, with its text."""
        try:
            return function()
        except FastwireError:
            raise
        except Exception as exc:
            raise fault(f"{self._name}: {type(exc).__name__}: {exc}") from exc


def _load(config: ProviderConfig) -> Callable[..., Callable[[], str]]:
    found = list(entry_points(group=GROUP, name=config.type))
    if not found:
        known = ", ".join(sorted(entry_points(group=GROUP).names))
        raise _error("type", f'no plug-in "{config.type}" is installed ({GROUP}); there is {known}')
    if len(found) > 1:
        where = ", ".join(sorted(point.value for point in found))
        raise _error("type", f'"{config.type}" is the name of several plug-ins: {where}')
    try:
        factory: Callable[..., Callable[[], str]] = found[0].load()
    except ModuleNotFoundError as exc:
        raise _error("type", f"{config.type} needs the package {exc.name}, which is not installed") from None
    except Exception as exc:
        raise _error("type", f"the plug-in {config.type} ({found[0].value}) cannot be loaded: {exc}") from exc
    try:
        inspect.signature(factory).bind(**config.options)
    except TypeError as exc:
        raise _error("options", f"{config.type} does not take them: {exc}") from None
    return factory


def _error(key: str, message: str) -> ConfigError:
    return ConfigError([Problem("", f"auth.provider.{key}", message)])
