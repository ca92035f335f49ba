"""Resident memory of the daemon from its start to its exit, by the kernel's own account."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.real.daemon import Daemon

ROOM_MIB = 128  # interpreter, packages, libraries, what encoders hold
MEASURED = Path(__file__).with_name("measured.py")


@dataclass
class Seen:
    """The kernel's value for the peak of the resident memory of a run, and the highest sample by commit, in MiB."""

    by_commit: list[float] = field(default_factory=list)
    peak: float = 0


def watch(config: Path, dataset: Path, script: dict[str, object] | None = None) -> Seen:
    """Run the daemon to the end of its topic, which lands in ``dataset``."""
    measured, log = (dataset.with_name(name) for name in ("memory.json", "log"))
    commits = dataset / "_fastwire" / "log"
    prefix = (sys.executable, str(MEASURED), str(measured), str(commits), "setpriv", "--pdeathsig", "KILL")
    with Daemon("run", str(config), "--until-end", log=log, script=script, prefix=prefix) as daemon:
        daemon.wait_done()
    return Seen(**json.loads(measured.read_text()))
