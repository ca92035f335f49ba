"""The interface to systemd: readiness, status, watchdog, and the text of a unit."""

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from ..runtime.terminal import printable

# The executable in the unit templates; unit() replaces it.
_TEMPLATE_EXECUTABLE = "/usr/bin/fastwire-consume"


class Notifier:
    """Sends service notifications to systemd. Does nothing unless systemd has started the process (``Type=notify``).

    No method raises: a lost message must not stop a working daemon.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address: str | None = environ.get("NOTIFY_SOCKET") or None
        self._socket: socket.socket | None = None
        self.watchdog_s = _watchdog_s(environ) if self._address else None
        """Seconds after which systemd expects :meth:`watchdog`; call it at half of that. None: no watchdog."""

    def ready(self, status: str = "") -> None:
        """Report that the daemon has started."""
        self._send("READY=1", status)

    def status(self, status: str) -> None:
        """Report one line that ``systemctl status`` shows."""
        self._send("", status)

    def watchdog(self) -> None:
        """Report that the daemon works or is idle. Without this systemd kills and restarts the process."""
        self._send("WATCHDOG=1", "")

    def stopping(self, status: str = "") -> None:
        """Report that the daemon has begun to drain."""
        self._send("STOPPING=1", status)

    def close(self) -> None:
        """Close the socket; later calls do nothing."""
        self._address = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, state: str, status: str) -> None:
        if self._address is None:
            return
        lines = [state] if state else []
        if status:
            lines.append("STATUS=" + printable(" ".join(status.splitlines())))
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket.setblocking(False)
            # A name that begins with @ is in the abstract namespace, which the kernel marks with a zero byte.
            address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
            self._socket.sendto("\n".join(lines).encode(), address)
        except OSError:
            pass


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    microseconds, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None  # meant for the process that started us
    return int(microseconds) / 1_000_000


def own_executable() -> str:
    """Return the path of the ``fastwire-consume`` that belongs to this process's installation."""
    called = Path(sys.argv[0])
    if called.name.startswith("fastwire-consume") and called.exists():
        return str(called.absolute())
    beside = Path(sys.executable).with_name("fastwire-consume")
    if beside.exists():
        return str(beside)
    return shutil.which("fastwire-consume") or _TEMPLATE_EXECUTABLE


def unit(hardened: bool, executable: str | None = None) -> str:
    """Return the text of a systemd template unit; its instances read ``/etc/fastwire/<instance>.toml``."""
    name = "fastwire-hardened@.service" if hardened else "fastwire@.service"
    text = (files("fastwire_daemon.conf") / name).read_text(encoding="utf-8")
    path = executable or own_executable()
    quoted = path.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    if quoted != path or any(letter.isspace() for letter in path):
        quoted = f'"{quoted}"'
    return text.replace(_TEMPLATE_EXECUTABLE, quoted)
