"""The processes that have the library of Iceberg: one for each catalog up to a limit, started by their first requests.

A process answers the requests of different tables side by side, so a table without an answer holds up its own requests
only. A caller may stop waiting for an answer: the request stays under way, and the same client sends no other before
its answer has come. That of a look is kept for its next look, so a slow catalog makes progress; that of a change is
dropped, because the next look shows the change. A request whose answer takes too long is given up.
"""

import atexit
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..tableformat import TableLateError, TableRacedError, TableStoppedError

ANSWER_S = 90.0
"""The longest time for an answer, in seconds: a start of the process takes some of it."""
MOST = 4
"""Processes; each takes 100 MiB. Further catalogs share them."""

_MAIN = "from fastwire_daemon.dataset.tables.icebergworker import main; main()"
_END_S = 5.0
# Requests that were given up, each of which holds a thread of the process until that is ended.
_MOST_GIVEN_UP = 16


@dataclass(eq=False, slots=True)
class _Request:
    """A request that a process has got, and its answer once that is there."""

    line: bytes
    looks: bool  # whether it changes nothing
    began: float = field(default_factory=time.monotonic)
    there: threading.Event = field(default_factory=threading.Event)
    answer: bytes | None = None
    ended: str = ""  # how the process ended, if there is no answer
    given_up: bool = False


class Worker:
    """A process with the library: started by the first request, again after its death, and ended with this one.

    It answers requests side by side. For any thread.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()
        self._under_way: dict[int, _Request] = {}  # those of the process, by number

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def send(self, line: bytes, *, looks: bool) -> _Request:
        """Send a request, which says whether it only looks. Raises TableStoppedError if the process has ended."""
        with self._guard:
            process = self._started()
            assert process.stdin is not None
            request = _Request(line, looks)
            number = next(self._numbers)
            self._under_way[number] = request
            try:
                process.stdin.write(b"%d %s\n" % (number, line))
                process.stdin.flush()
            except OSError as exc:
                self._end(kill=True)
                raise _ended(str(exc)) from exc
        return request

    def give_up(self, request: _Request) -> None:
        """Wait for ``request`` no longer. The process ends if it is asked for nothing else, or has many of the kind."""
        with self._guard:
            request.given_up = True
            under_way = list(self._under_way.values())
            given_up = sum(each.given_up for each in under_way)
            if given_up and (given_up == len(under_way) or given_up >= _MOST_GIVEN_UP):
                self._end(kill=True)

    def end(self) -> None:
        """End the process: at once if it has requests under way."""
        with self._guard:
            self._end(kill=bool(self._under_way))

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
            self._under_way = {}
            reader = threading.Thread(target=_read, args=(process, self._under_way), name="iceberg", daemon=True)
            reader.start()
        return process

    def _end(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
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


def _read(process: "subprocess.Popen[bytes]", under_way: dict[int, _Request]) -> None:
    """Hand the answers of ``process`` to its requests, until it ends; those that are left then get none."""
    assert process.stdout is not None
    with process.stdout as answers:
        for line in answers:
            number, _, answer = line.partition(b" ")
            request = under_way.pop(int(number))
            request.answer = answer
            request.there.set()
    code = process.wait()
    while under_way:
        _, request = under_way.popitem()
        request.ended = f"exit code {code}"
        request.there.set()


def _ended(why: str) -> TableStoppedError:
    return TableStoppedError(f"the process that commits to it has ended: {why}")


class Client:
    """Asks a process for one table, one request after the other. For one thread at a time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._earlier: _Request | None = None  # one whose answer nothing has waited for

    def ask(self, request: Mapping[str, Any], until: float, earlier_until: float) -> Any:
        """Return the answer to a request. ``until`` are times of the monotonic clock.

        The caller waits ``earlier_until`` for the answer to a request that is still under way. Raises TableLateError if
        there is no answer by then: whether it takes effect shows later. Raises TableRacedError and TableStoppedError.
        """
        line = json.dumps(request).encode()
        earlier, answer = self._earlier, None
        if earlier is not None:
            found = self._wait(earlier, earlier_until)
            answer = found if earlier.looks and earlier.line == line else None
        if answer is None:
            answer = self._wait(self._worker.send(line, looks=request["do"] == "look"), until)
        told = json.loads(answer)
        if "raced" in told:
            raise TableRacedError(told["raced"])
        if "stopped" in told:
            raise TableStoppedError(told["stopped"])
        return told["answer"]

    def _wait(self, request: _Request, until: float) -> bytes:
        """Return the answer to ``request``; one that is late stays the earlier one."""
        self._earlier = request
        if not request.there.wait(max(0.0, min(until, request.began + ANSWER_S) - time.monotonic())):
            seconds = time.monotonic() - request.began
            if seconds < ANSWER_S:
                raise TableLateError("its catalog has not answered yet", seconds)
            self._earlier = None
            self._worker.give_up(request)
            raise TableStoppedError(f"its catalog has not answered within {ANSWER_S:.0f} s")
        self._earlier = None
        if request.answer is None:
            raise _ended(request.ended)
        return request.answer


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
