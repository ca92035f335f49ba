"""Resident memory of the daemon while it runs, by the kernel's own account."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.daemon import Daemon

__all__ = ["ROOM_MIB", "Seen", "watch"]

ROOM_MIB = 128  # interpreter, packages, libraries, what encoders hold


def resident_mib(pid: int, peak: bool = False) -> float:
    """Resident memory of a process, now or at its highest."""
    name = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)  # it is a zombie


@dataclass
class Seen:
    """The memory of a run in MiB, look by look, and the kernel's word for the highest."""

    looks: list[float] = field(default_factory=list)
    peak: float = 0


def watch(config: Path, log: Path, script: dict[str, object] | None = None) -> Seen:
    """Run the daemon to the end of its topic."""
    seen = Seen()
    with Daemon("run", str(config), "--until-end", log=log, script=script) as daemon:
        while daemon.process.poll() is None:
            try:
                seen.looks.append(resident_mib(daemon.process.pid))
                seen.peak = resident_mib(daemon.process.pid, peak=True)
            except (FileNotFoundError, ProcessLookupError):
                break  # it has just ended
            time.sleep(0.005)
        daemon.wait_done()
    return seen
