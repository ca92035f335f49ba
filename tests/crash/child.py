"""Runs the command line with an accident built in: ``child.py SCRIPT arguments…``.

SCRIPT is JSON: ``{"at": step, "nth": 2, "do": "kill"}`` acts when a writer of a dataset, a commit to a database,
an erasure or a replay of dead letters reaches ``step`` for the nth time (default: the first). ``do`` is

* ``kill``: SIGKILL to the own process; ``stop``: SIGSTOP;
* ``fail``: let the step fail with EIO, once;
* ``sleep``: block the writer's thread for ``seconds``;
* ``fill``: write a file into ``folder`` until the disk is full.

``"checkpoint_every"`` replaces the number of log entries between checkpoints, so that short tests reach them, and
``"group"`` the number of dead letters that a replay takes in hand, ``"settle"`` its pause before it looks for them.
"""

import errno
import json
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any

from fastwire_daemon.cli.app import main
from fastwire_daemon.cli.dead import replay
from fastwire_daemon.dataset.deadletters.replay import Replay
from fastwire_daemon.dataset.erasure import erasure
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.sinks import registry


class Accident:
    """Counts how often the step was reached, and acts once."""

    def __init__(self, script: dict[str, Any]) -> None:
        self._script = script
        self._left = int(script.get("nth", 1))

    def reached(self, step: str) -> None:
        """Called by every writer of the process at every step."""
        if step != self._script.get("at"):
            return
        self._left -= 1
        if self._left == 0:
            self._act()

    def _act(self) -> None:
        do = self._script["do"]
        if do == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif do == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif do == "fail":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        elif do == "sleep":
            print(json.dumps({"event": "accident", "level": "info"}), file=sys.stderr, flush=True)
            time.sleep(float(self._script["seconds"]))
        elif do == "fill":
            fill(self._script["folder"])
        else:
            raise ValueError(f"no such accident: {do}")


def fill(folder: str) -> None:
    """Leave no block free where ``folder`` is."""
    with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2


def install(script: dict[str, Any]) -> None:
    """Let every writer of this process tell the accident what it reaches."""
    accident = Accident(script)
    original = DatasetWriter.__init__

    def wrapped(self: DatasetWriter, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        told = self._reached

        def reached(step: str) -> None:
            told(step)
            accident.reached(step)

        self._reached = reached

    DatasetWriter.__init__ = wrapped  # type: ignore[method-assign]
    erase = erasure.erase

    def erased(*args: Any, **options: Any) -> erasure.Erasure:
        return erase(*args, **options, reached=accident.reached)

    erasure.erase = erased
    enter = Replay.__enter__

    def entered(self: Replay) -> Replay:
        enter(self)
        self.reached = accident.reached
        return self

    Replay.__enter__ = entered  # type: ignore[method-assign,assignment]
    make: Any = registry._database_sink

    def made(*args: Any) -> Any:
        sink = make(*args)
        sink._reached = accident.reached
        return sink

    registry._database_sink = made  # type: ignore[assignment]
    if "settle" in script:
        for module in ("pulsar.recall", "reading.clusterrecall"):
            recall: Any = import_module(f"fastwire_daemon.systems.{module}")
            recall.SETTLE_S = float(script["settle"])
    if "group" in script:
        replay._GROUP_RECORDS = int(script["group"])
    if "checkpoint_every" in script:
        DatasetWriter.checkpoint_every = int(script["checkpoint_every"])


if __name__ == "__main__":
    install(json.loads(sys.argv.pop(1)))
    main()
