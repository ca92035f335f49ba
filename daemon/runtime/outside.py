"""Calls of services that block a thread of a sink: what each waits for, and how long that explains its silence.

Such a call has a deadline of its own. Until then the wait has a known reason, which ``/status`` shows after a second;
a call that outlasts its deadline hangs without one.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

TOLD_AFTER_S = 1.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class _Wait(NamedTuple):
    what: str
    began: float
    most_s: float


_waits: dict[int, _Wait] = {}  # by thread


@contextmanager
def waits_for(what: str, most_s: float) -> Iterator[None]:
    """Declare that the code inside waits for ``what``, a noun phrase, on this thread and ``most_s`` seconds at most."""
    thread = threading.get_ident()
    outer = _waits.get(thread)
    _waits[thread] = _Wait(what, monotonic(), most_s)
    try:
        yield
    finally:
        if outer is None:
            del _waits[thread]
        else:
            _waits[thread] = outer


def waiting(threads: Iterable[int | None], after_s: float = TOLD_AFTER_S) -> str | None:
    """Return what the first of these threads with a declared wait waits for, as a sentence for the status.

    Waits of less than ``after_s`` and beyond their deadline do not count. For any thread.
    """
    for thread in threads:
        wait = _waits.get(thread or 0)
        if wait is not None and after_s <= (waited := monotonic() - wait.began) < wait.most_s:
            return f"waits for {wait.what}, for {waited:.0f} of at most {wait.most_s:.0f} s"
    return None


def answer_of(question: Coroutine[Any, Any, T]) -> T:
    """Run ``question`` to its end and return its result, also on a thread whose event loop runs, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(question)
    with ThreadPoolExecutor(1, "question") as apart:
        return apart.submit(asyncio.run, question).result()


class Answers(Generic[K, V]):
    """Answers of a service that never change, each asked for once. For any thread.

    Of several callers of a key one asks. A question that takes long holds up neither answers that are known, nor other
    questions.
    """

    def __init__(self, service: str, most_s: float) -> None:
        self._service, self._most_s = service, most_s
        self._known: dict[K, V] = {}
        self._asking: dict[K, threading.Lock] = {}

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """Return the answer for ``key``: the known one, or that of ``ask``, which takes ``most_s`` seconds at most.

        Raises the exception of ``ask``.
        """
        if key in self._known:
            return self._known[key]
        with waits_for(self._service, 2 * self._most_s), self._asking.setdefault(key, threading.Lock()):
            try:
                if key not in self._known:
                    with waits_for(self._service, self._most_s):
                        self._known[key] = ask()
                return self._known[key]
            finally:
                self._asking.pop(key, None)
