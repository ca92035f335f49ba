"""The command ``fastwire-consume``: takes over the process's signals, and only then imports what runs it.

The imports of a daemon take most of a second. A signal that came meanwhile would end the process as the system does,
without an exit code of ours, or with a traceback.
"""

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["main"]

# What `run` handles once it has started.
_HELD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_STOPS = (signal.SIGTERM, signal.SIGINT)


def main() -> NoReturn:
    """Run the command line and end the process."""
    running = sys.argv[1:2] == ["run"]
    held = _hold() if running else []
    if not running:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it without a traceback
    from fastwire_daemon.cli.app import main as command
    from fastwire_daemon.runtime import signals

    signals.held = held
    code: object = 1
    try:
        if not running:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except SystemExit as exc:
        code = exc.code
        raise
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
        sys.exit(code)
    finally:
        _end_with(code, _HELD if running else (signal.SIGINT,))


def _hold() -> list[int]:
    """Collect signals in the list that is returned; a second one to stop ends the process at once."""
    held: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        if number in _STOPS and any(each in _STOPS for each in held):
            os._exit(1)
        held.append(number)

    for number in _HELD:
        signal.signal(number, take)
    return held


def _end_with(code: object, numbers: tuple[int, ...]) -> None:
    """Let signals that arrive while the interpreter ends, end the process with its exit code; make the end short."""
    for number in numbers:
        if number in _STOPS:
            signal.signal(number, lambda *_: os._exit(code if isinstance(code, int) else 0))
        else:
            signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # the interpreter would look through all that was imported, several times: a tenth of a second
