"""The processes that have the library of Iceberg: one for each catalog up to a limit, started by their first requests.

A catalog that does not answer holds up its own process only. A caller may stop waiting for an answer: the request stays
under way, and no other is sent before its answer has come. That of a look is kept for the next look of the same table,
so a slow catalog makes progress; that of a change is dropped, because the next look shows the change. A process whose
answer takes too long is ended.
"""

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from ..tableformat import TableLateError, TableRacedError, TableStoppedError

__all__ = ["ANSWER_S", "MOST", "Worker", "worker_of"]

ANSWER_S = 90.0
"""The longest time for an answer, in seconds: a start of the process takes some of it."""
MOST = 4
"""Processes; each takes 100 MiB. Further catalogs share them."""

_MAIN = "from fastwire_daemon.dataset.tables.icebergworker import main; main()"
_END_S = 5.0


class Worker:
    """A process with the library: started by the first request, again after its death, and ended with this one.

    It answers one request at a time. For any thread.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._asked_at: float | None = None  # of the request that has no answer yet
        self._asked = b""  # that request
        self._looks = False  # whether it changes nothing
        self._kept: dict[bytes, bytes] = {}  # answers that nothing has waited for, by request

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def ask(self, request: Mapping[str, Any], until: float, earlier_until: float) -> Any:
        """Return the answer to a request. ``until`` are times of the monotonic clock.

        The caller waits ``earlier_until`` for the answer to a request that is still under way. Raises TableLateError if
        there is no answer by then: whether it takes effect shows later. Raises TableRacedError and TableStoppedError.
        """
        sent = json.dumps(request).encode() + b"\n"
        if not self._guard.acquire(timeout=max(0.0, until - time.monotonic())):
            raise TableLateError("its catalog still answers for another table", 0.0)
        try:
            if self._asked_at is not None:
                answer = self._receive(earlier_until)
                if self._looks:
                    self._kept[self._asked] = answer
            line = self._kept.pop(sent, None) or self._exchange(sent, request["do"] == "look", until)
        finally:
            self._guard.release()
        answer = json.loads(line)
        if "raced" in answer:
            raise TableRacedError(answer["raced"])
        if "stopped" in answer:
            raise TableStoppedError(answer["stopped"])
        return answer["answer"]

    def end(self) -> None:
        """End the process: after its request, or at once if nothing waits for that."""
        with self._guard:
            self._end(kill=self._asked_at is not None)

    def _exchange(self, request: bytes, looks: bool, until: float) -> bytes:
        process = self._started()
        assert process.stdin is not None
        self._asked_at, self._asked, self._looks = time.monotonic(), request, looks
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except OSError as exc:
            self._end(kill=True)
            raise TableStoppedError(f"the process that commits to it has ended: {exc}") from exc
        return self._receive(until)

    def _receive(self, until: float) -> bytes:
        process, began = self._process, self._asked_at
        assert process is not None and process.stdout is not None and began is not None
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while b"\n" not in self._rest:
                    if not selector.select(max(0.0, min(until, began + ANSWER_S) - time.monotonic())):
                        self._late(time.monotonic() - began)
                    piece = os.read(process.stdout.fileno(), 1 << 16)
                    if not piece:
                        raise OSError(f"exit code {process.wait()}")
                    self._rest += piece
        except TableLateError:
            raise
        except BaseException as exc:
            self._end(kill=True)
            if isinstance(exc, OSError):
                raise TableStoppedError(f"the process that commits to it has ended: {exc}") from exc
            raise
        self._asked_at = None
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _late(self, seconds: float) -> None:
        if seconds >= ANSWER_S:
            raise TimeoutError(f"its catalog has not answered within {ANSWER_S:.0f} s")
        raise TableLateError(f"its catalog has not answered for {seconds:.0f} s", seconds)

    def _started(self) -> "subprocess.Popen[bytes]":
        process = self._process
        if process is None or process.poll() is not None:
            self._end()
            # In a group of its own, a Ctrl-C reaches it only through this process.
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", _MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        return process

    def _end(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        self._rest, self._asked_at = b"", None
        self._kept.clear()
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        if kill:
            process.kill()
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


_guard = threading.Lock()
_workers: list[Worker] = []
_places: dict[str, Worker] = {}  # by the settings of the catalog


def worker_of(catalog: Mapping[str, str]) -> Worker:
    """Return the process for a catalog with these settings, which include its name and not that of a table."""
    key = json.dumps(dict(catalog), sort_keys=True)
    with _guard:
        if key not in _places:
            if len(_workers) < MOST:
                _workers.append(Worker())
            _places[key] = min(reversed(_workers), key=[*_places.values()].count)
        return _places[key]


def _end_all() -> None:
    for worker in _workers:
        worker.end()


atexit.register(_end_all)
